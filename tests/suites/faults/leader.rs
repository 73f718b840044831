//! Elections among real processes that are killed, stopped, step down or lose their network.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{LockContext, LockError};
use mongolock_tests::{AMPLE, Actor, Event, History, Step, TestDb, must, order, say, tell, test_db};
use rustix::process::Signal;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{self, NAME, Part, Section};

/// The time for which a leader leads that renews no more.
const EXPIRY: Duration = Duration::from_secs(4);

/// The time after the end of a lease within which another process leads.
const TAKEN: Duration = Duration::from_secs(1);

/// A part: it takes part in the election without an end. For each line that it gets it steps down once while it leads.
#[tokio::test]
async fn campaign() {
    let Some(part) = Part::given().await else {
        return;
    };
    let steps_down = Arc::new(Notify::new());
    let ordered = Arc::clone(&steps_down);
    tokio::spawn(async move {
        while order().await.is_some() {
            ordered.notify_one();
        }
    });
    let leader = part.provider().leader(NAME).expiry(part.expiry);
    say("campaigns");
    loop {
        let body = async |lead: LockContext| {
            tell(&Event::now(0, Step::Invoke));
            let _section = Section::begin(lead.clone());
            say(format_args!("leads {}", lead.fencing_token()));
            steps_down.notified().await;
            Ok::<_, LockError>(())
        };
        leader.run(body).await.unwrap();
        say("stepped");
    }
}

fn candidate(db: &TestDb) -> Actor {
    actor::start("leader::campaign", db, EXPIRY, &[])
}

/// The token with which the process leads.
async fn leads(process: &mut Actor) -> i64 {
    process.until("leads").await.parse().unwrap()
}

/// Asserts that the process does not lead.
async fn assert_waits(process: &mut Actor) {
    let said = timeout(Duration::from_millis(500), process.until("leads")).await;
    assert!(said.is_err(), "two processes lead: {said:?}");
}

async fn judged(processes: impl IntoIterator<Item = Actor>) -> usize {
    let mut history = History::default();
    for process in processes {
        process.tell(&mut history).await;
    }
    let verdict = history.judge();
    verdict.assert_sound();
    verdict.holds
}

/// A leader that was killed is replaced when its lease ends, whoever waits.
#[tokio::test]
async fn a_killed_leader_is_replaced_after_its_lease() {
    let db = test_db().await;
    let mut first = candidate(&db);
    let token = leads(&mut first).await;
    let mut others = [candidate(&db), candidate(&db)];
    for other in &mut others {
        other.until("campaigns").await;
        assert_waits(other).await;
    }
    first.signal(Signal::KILL);
    let killed = Instant::now();
    let [one, two] = &mut others;
    let next = tokio::select! { next = leads(one) => next, next = leads(two) => next };
    assert!(killed.elapsed() <= EXPIRY + TAKEN, "{:?}", killed.elapsed());
    assert!(next > token);
    assert_eq!(judged(others.into_iter().chain([first])).await, 2);
}

/// A leader that was stopped beyond its lease runs no further step of its body, and takes part in the next election.
#[tokio::test]
async fn a_stopped_leader_campaigns_again() {
    let db = test_db().await;
    let mut first = candidate(&db);
    let token = leads(&mut first).await;
    let mut second = candidate(&db);
    second.until("campaigns").await;
    assert_waits(&mut second).await;
    first.signal(Signal::STOP);
    let next = timeout(AMPLE, leads(&mut second)).await.unwrap();
    assert!(next > token);
    first.signal(Signal::CONT);
    assert_waits(&mut first).await;
    second.signal(Signal::KILL);
    let again = timeout(AMPLE, leads(&mut first)).await.unwrap();
    assert!(again > next);
    assert_eq!(judged([first, second]).await, 3);
}

/// Who steps down and takes part again lets those lead that wait.
#[tokio::test]
async fn leaders_that_step_down_take_turns() {
    let db = test_db().await;
    let (mut first, mut second) = (candidate(&db), candidate(&db));
    first.until("campaigns").await;
    second.until("campaigns").await;
    let [mut one, mut two] = [&mut first, &mut second];
    // Whichever was faster.
    let is_first = tokio::select! { _ = leads(one) => true, _ = leads(two) => false };
    if !is_first {
        std::mem::swap(&mut one, &mut two);
    }
    for _ in 0..4 {
        // The other one waits for the release.
        sleep(Duration::from_millis(500)).await;
        one.send("step down").await;
        let stepped = Instant::now();
        timeout(AMPLE, leads(two)).await.unwrap();
        assert!(stepped.elapsed() <= TAKEN, "{:?}", stepped.elapsed());
        std::mem::swap(&mut one, &mut two);
    }
    assert_eq!(judged([first, second]).await, 5);
}

/// A process that has lost the lead and its network takes part again when the network is back.
#[tokio::test]
async fn a_leader_without_a_network_campaigns_again() {
    let db = test_db().await;
    let proxy = must(db.proxy().await);
    let mut first = Actor::start(actor::command(
        "leader::campaign",
        &proxy.uri(),
        db.name(),
        EXPIRY,
    ));
    let token = leads(&mut first).await;
    let mut second = candidate(&db);
    second.until("campaigns").await;
    proxy.freeze();
    let next = timeout(AMPLE, leads(&mut second)).await.unwrap();
    assert!(next > token);
    proxy.thaw();
    second.signal(Signal::KILL);
    let again = timeout(AMPLE, leads(&mut first)).await.unwrap();
    assert!(again > next);
    assert_eq!(judged([first, second]).await, 3);
}

//! Elections among real processes that lose their network, are stopped, are killed, and step down, in one history.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{LockContext, LockError};
use mongolock_tests::{AMPLE, Actor, Event, History, Step, must, order, say, tell, test_db};
use rustix::process::Signal;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{NAME, Part, Section, command};

/// The time for which a leader leads that renews no more.
const EXPIRY: Duration = Duration::from_secs(3);

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
            let _section = Section::begin(lead.clone())?;
            say(format_args!("leads {}", lead.fencing_token()));
            steps_down.notified().await;
            Ok::<_, LockError>(())
        };
        leader.run(body).await.unwrap();
        say("stepped");
    }
}

/// The processes, and which of them leads.
struct Election {
    processes: Vec<Actor>,
    leader: usize,
    token: i64,
    leads: usize,
}

impl Election {
    /// Waits until another process leads, which must be within this time.
    async fn next(&mut self, limit: Duration) {
        let begun = Instant::now();
        let (former, token) = (self.leader, self.token);
        while (self.leader, self.token) == (former, token) {
            for (number, process) in self.processes.iter_mut().enumerate() {
                // One that does not lead, or has ended, says nothing.
                let leads = timeout(Duration::from_millis(20), process.next_unless_ended()).await;
                if let Ok(Some((word, token))) = leads
                    && word == "leads"
                {
                    (self.leader, self.token) = (number, token.parse().unwrap());
                    break;
                }
            }
            assert!(begun.elapsed() <= limit, "nobody leads after {limit:?}");
        }
        assert_ne!(self.leader, former, "another one waits");
        assert!(self.token > token);
        self.leads += 1;
    }

    /// Leaders step down until this process leads.
    async fn until_leads(&mut self, wanted: usize) {
        let begun = Instant::now();
        while self.leader != wanted {
            assert!(begun.elapsed() < AMPLE, "it does not lead any more");
            // The others wait for the release.
            sleep(Duration::from_millis(500)).await;
            self.processes[self.leader].send("step down").await;
            self.next(TAKEN).await;
        }
    }
}

/// One process leads at a time. A leader that has lost its network, or was stopped beyond its lease, runs no further step of its body, and
/// takes part again. Who steps down lets those lead that wait. A leader that was killed is replaced when its lease ends.
#[tokio::test]
async fn a_leader_is_replaced_after_its_lease_and_campaigns_again() {
    let db = test_db().await;
    let proxy = must(db.proxy().await);
    let candidate = |uri: &str| Actor::start(command("leader::campaign", uri, db.name(), EXPIRY));
    let mut first = candidate(&proxy.uri());
    let token = first.until("leads").await.parse().unwrap();
    let mut processes = vec![first, candidate(db.uri()), candidate(db.uri())];
    for other in &mut processes[1..] {
        other.until("campaigns").await;
    }
    let mut election = Election {
        processes,
        leader: 0,
        token,
        leads: 1,
    };
    sleep(EXPIRY).await;
    proxy.freeze();
    election.next(EXPIRY + TAKEN).await;
    proxy.thaw();
    election.until_leads(0).await;

    let stopped = election.leader;
    election.processes[stopped].signal(Signal::STOP);
    election.next(EXPIRY + TAKEN).await;
    election.processes[stopped].signal(Signal::CONT);
    election.until_leads(stopped).await;

    election.processes[stopped].signal(Signal::KILL);
    election.next(EXPIRY + TAKEN).await;
    let mut history = History::default();
    for process in election.processes {
        process.tell(&mut history).await;
    }
    let verdict = history.judge();
    verdict.assert_sound();
    assert_eq!(verdict.holds, election.leads);
}

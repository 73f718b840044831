//! Real processes that are killed, stopped, or have a wrong clock.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use mongolock_tests::{AMPLE, Actor, History, Step, eventually, must, test_db, wrong_clock};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::act::{Act, acquired};
use crate::actor::{self, NAME, holder, of};
use crate::noted::{acquire, release};
use crate::{assert_stores_its_tokens, patient};

/// The number of the test process in histories.
const RIVAL: usize = 0;

/// S0.13, S0.14, S1.26: what a killed process held becomes free without the TTL index and without an operator, for a caller
/// that waits already.
#[tokio::test]
async fn what_a_killed_holder_held_is_free_after_its_expiry() {
    join_all([Act::Lock, Act::Set, Act::Permit(3)].map(kill_the_holder)).await;
}

async fn kill_the_holder(act: Act) {
    let db = test_db().await;
    let expiry = Duration::from_secs(4);
    let mut holder = holder(&db, expiry, &[of(act)]);
    holder.until("held").await;
    let mut history = History::default();
    history.note(RIVAL, Step::Invoke);
    let provider = patient(db.database());
    let waiter = provider.clone();
    let waiting = tokio::spawn(async move { act.acquire(&waiter, NAME).await.unwrap() });
    sleep(expiry * 2).await;
    assert!(!waiting.is_finished(), "the process renews its lease");
    holder.signal(Signal::KILL);
    let killed = Instant::now();
    let next = timeout(AMPLE, waiting).await.unwrap().unwrap();
    // A waiter that did not know the end of the lease would look again up to 30 s later.
    assert!(
        killed.elapsed() <= expiry + Duration::from_secs(3),
        "{act:?}: {:?}",
        killed.elapsed()
    );
    history.add(acquired(&next.context()).unwrap().of(RIVAL));
    if let Act::Permit(permits) = act {
        let semaphore = provider.semaphore(NAME, permits);
        let are_free = async || (semaphore.available().await.unwrap() == permits - 1).then_some(());
        must(eventually(AMPLE, "its other permits are free", are_free).await);
    }
    next.release().await.unwrap();
    holder.tell(&mut history).await;
    let verdict = history.judge();
    verdict.assert_sound();
    assert_eq!((verdict.holds, verdict.lost.len()), (2, 0));
}

/// A holder that was stopped beyond its lease loses the lock before its body runs another step, and does not touch the
/// next holder's claim.
#[tokio::test]
async fn a_stopped_holder_notices_its_loss_before_its_next_step() {
    let db = test_db().await;
    let mut holder = holder(&db, Duration::from_secs(4), &[]);
    let old: i64 = holder.until("held").await.parse().unwrap();
    holder.until("step").await;
    holder.signal(Signal::STOP);
    let mut history = History::default();
    let next = acquire(&mut history, RIVAL, patient(db.database()).lock(NAME)).await;
    // The lines that the holder printed before it was stopped.
    while let Ok((word, _)) = timeout(Duration::from_millis(100), holder.next()).await {
        assert_eq!(word, "step");
    }
    holder.signal(Signal::CONT);
    let (word, token) = holder.next().await;
    assert_eq!(
        (word.as_str(), token.parse()),
        ("lost", Ok(old)),
        "the body runs no further step"
    );
    assert!(next.fencing_token().get() > old);
    sleep(Duration::from_millis(300)).await;
    assert!(!next.is_lost());
    assert_stores_its_tokens(db.database(), &next.context()).await;
    release(&mut history, RIVAL, next)
        .await
        .expect("late commands of the stopped holder change nothing");
    holder.tell(&mut history).await;
    let verdict = history.judge();
    verdict.assert_sound();
    // No lock can end a section while its process is stopped.
    assert_eq!((verdict.lost.len(), verdict.late_sections.len()), (1, 1));
}

/// S4.9: of several workers one works at a time. When it is killed, another one takes over, until none is left.
#[tokio::test]
async fn workers_take_over_in_turn() {
    let db = test_db().await;
    let expiry = Duration::from_secs(4);
    let mut workers: Vec<Actor> = (0..3).map(|_| holder(&db, expiry, &[])).collect();
    for worker in &mut workers {
        worker.until("clock").await;
    }
    let (mut last, mut history) = (0, History::default());
    while !workers.is_empty() {
        let (first, token) = first_to_hold(&mut workers).await;
        assert!(token > last);
        last = token;
        let mut holder = workers.swap_remove(first);
        for _ in 0..5 {
            holder.until("step").await;
        }
        for waiting in &mut workers {
            assert!(
                timeout(Duration::from_millis(50), waiting.next()).await.is_err(),
                "only one worker works at a time"
            );
        }
        holder.signal(Signal::KILL);
        holder.tell(&mut history).await;
    }
    let verdict = history.judge();
    verdict.assert_sound();
    assert_eq!((verdict.holds, verdict.lost.len()), (3, 0));
}

async fn first_to_hold(workers: &mut [Actor]) -> (usize, i64) {
    let begun = Instant::now();
    while begun.elapsed() < AMPLE {
        for (index, worker) in workers.iter_mut().enumerate() {
            if let Ok((word, token)) = timeout(Duration::from_millis(20), worker.next()).await {
                assert_eq!(word, "held");
                return (index, token.parse().unwrap());
            }
        }
    }
    panic!("no worker takes over");
}

/// S3.3: only the server's clock counts.
#[tokio::test]
async fn a_wall_clock_that_is_an_hour_off_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let shim = wrong_clock(directory.path()).await;
    for shift in [-3600_i64, 3600] {
        let db = test_db().await;
        let environment = actor::wrong(&shim, shift);
        let expiry = Duration::from_secs(4);
        let mut wrong = holder(&db, expiry, &environment);
        let clock: i64 = wrong.until("clock").await.parse().unwrap();
        let true_clock = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let off = clock - i64::try_from(true_clock).unwrap();
        assert!(
            (off - shift).abs() < 60,
            "the clock of the process is {off} s off"
        );

        let mut history = History::default();

        // The process holds and renews the lock for several expiries.
        let held: i64 = wrong.until("held").await.parse().unwrap();
        let rival = patient(db.database()).lock(NAME);
        let end = Instant::now() + expiry * 2;
        while Instant::now() < end {
            assert!(rival.try_acquire().await.unwrap().is_none());
            sleep(Duration::from_millis(50)).await;
        }
        wrong.signal(Signal::KILL);
        let next = acquire(&mut history, RIVAL, rival).await;
        assert!(next.fencing_token().get() > held);

        // A process with a wrong clock also waits for a held lock.
        let mut waiting = holder(&db, expiry, &environment);
        waiting.until("clock").await;
        assert!(
            timeout(Duration::from_millis(1500), waiting.until("held"))
                .await
                .is_err()
        );
        let token = next.fencing_token().get();
        release(&mut history, RIVAL, next).await.unwrap();
        assert!(waiting.until("held").await.parse::<i64>().unwrap() > token);
        wrong.tell(&mut history).await;
        waiting.tell(&mut history).await;
        let verdict = history.judge();
        verdict.assert_sound();
        assert_eq!((verdict.holds, verdict.lost.len()), (3, 0));
    }
}

//! Permits of semaphores: lost and late messages, and processes that are killed or stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use mongolock::LockError;
use mongolock_tests::{AMPLE, Fault, History, eventually, must, test_db};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::act::{Act, TASKS_OF_PERMIT};
use crate::actor::{self, NAME};
use crate::{
    LONG_EXPIRY, Proxied, foreign_transaction, patient, until_indexed, until_none_is_held, with_expiry,
};

/// A query whose reply is lost is sent again, and the call goes on.
#[tokio::test]
async fn a_lost_query_does_not_end_a_try() {
    let it = Proxied::start(LONG_EXPIRY).await;
    // Whether the only permit is held, a claim can tell.
    let (semaphore, rival) = (it.provider.semaphore("s", 2), it.rival().semaphore("s", 2));
    let (held, _other) = (rival.acquire().await.unwrap(), rival.acquire().await.unwrap());
    let lost = it.proxy.inject(Fault::drop_reply().command("find"));
    let none = timeout(AMPLE, semaphore.try_acquire()).await.unwrap();
    must(lost.happened(AMPLE).await);
    assert!(none.unwrap().is_none());
    held.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_some());
}

/// The claim has found a holder, and the time is up before the query has a reply.
#[tokio::test]
async fn a_call_whose_time_ends_in_a_query_names_the_holder_that_it_has_met() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let held = it.rival().semaphore("s", 1).await.unwrap();
    let silence = Fault::swallow_request().command("find");
    it.proxy.inject(silence.times(10));
    let semaphore = it.provider.semaphore("s", 1);
    let short = semaphore.acquire_timeout(Duration::from_millis(300));
    let error = short.await.unwrap_err();
    assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
    held.release().await.unwrap();
}

/// A foreign transaction blocks the document of one permit: a call that has drawn it takes another one.
#[tokio::test]
async fn a_blocked_permit_does_not_keep_the_others() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    let semaphore = provider.semaphore("s", 2).acquire_timeout(Duration::from_secs(5));
    let (first, second) = (
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    );
    first.release().await.unwrap();
    second.release().await.unwrap();
    // A build of the index would wait for the transaction, and every claim behind it.
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &["s\u{1f}0"]).await;
    for _ in 0..4 {
        let permit = timeout(AMPLE, semaphore.acquire()).await.unwrap().unwrap();
        assert_eq!(permit.number(), 1);
        permit.release().await.unwrap();
    }
    session.abort_transaction().await.unwrap();
    until_none_is_held(db.database(), AMPLE).await;
}

/// One process is killed and another one stopped for longer than its leases: no two callers are ever inside with the same
/// permit, none has a permit that does not exist, and the others go on.
#[tokio::test]
async fn no_permit_is_held_twice_while_processes_are_killed_and_stopped() {
    const PERMITS: u32 = 3;
    let db = test_db().await;
    let expiry = Duration::from_secs(2);
    let environment = [(actor::TASKS, "4".to_owned()), (actor::TURNS, "12".to_owned())];
    let process = || actor::turns(Act::Permit(PERMITS), &db, expiry, &environment);
    let (mut steady, mut stopped, mut killed) = (process(), process(), process());
    for process in [&mut stopped, &mut killed] {
        process.until("turn").await;
    }
    stopped.signal(Signal::STOP);
    killed.signal(Signal::KILL);
    steady.until("done").await;
    // By now the leases of the stopped process have expired, and others had its permits.
    sleep(expiry * 2).await;
    stopped.signal(Signal::CONT);
    stopped.until("done").await;
    let mut history = History::default();
    for process in [steady, stopped, killed] {
        process.tell(&mut history).await;
    }
    let numbers: BTreeSet<usize> = history
        .holds()
        .iter()
        .map(|hold| hold.task / TASKS_OF_PERMIT)
        .collect();
    assert!(numbers.iter().eq(&[1, 2, 3]), "{numbers:?}");
    for number in numbers {
        let permit = history.of_tasks(|task| task / TASKS_OF_PERMIT == number);
        permit.judge().assert_sound();
    }
    let semaphore = patient(db.database()).semaphore(NAME, PERMITS);
    let all_free = async || (semaphore.available().await.unwrap() == PERMITS).then_some(());
    must(eventually(AMPLE, "all permits are free", all_free).await);
}

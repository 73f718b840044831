//! Commits that release the lock in the same transaction.

use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::doc;
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{Acknowledgment, WriteConcern};
use mongolock::{
    DistributedLock, LockContext, LockError, LockGuard, LockProvider, LossReason, distributed_lock,
};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, FailPoint, must, names};
use tokio::time::{sleep, timeout};

use super::{
    Way, accounts, accounts_of, begin, begin_with, failing_session, holder_in_transaction, insert,
    is_committed, prepared, session, slow_session, take_over,
};
use crate::fixture::{Fixture, assert_released, patient, renewing};
use crate::observer::millis;
/// Inserts account 1 and releases the lock with one transaction, which is repeated after a renewal.
async fn released(
    fixture: &Fixture,
    guard: &LockGuard,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    loop {
        begin(fixture, session).await;
        match guard.commit_and_release(session).await {
            Err(LockError::Mongo(error)) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {}
            ended => return ended,
        }
    }
}

/// The text of the error for a call that has joined the hold of another one.
fn assert_joined(refused: &Result<(), LockError>) {
    assert!(
        matches!(refused, Err(LockError::NoTransaction { name, reason, .. }) if name == "a" && reason.contains("joined")),
        "{refused:?}"
    );
}

fn reason_of(lost: Result<(), LockError>) -> LossReason {
    match lost {
        Err(LockError::Lost { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

/// The lock is free as soon as the commit has returned. The body goes on for longer than a lease, and is not cancelled.
#[tokio::test]
async fn a_commit_releases_the_lock() {
    #[distributed_lock(name = "a", provider = provider, expiry = "2s")]
    async fn work(provider: &LockProvider, fixture: &Fixture) -> Result<i32, LockError> {
        let context = LockContext::current().unwrap();
        let mut session = session(fixture).await;
        begin(fixture, &mut session).await;
        context.commit_and_release(&mut session).await?;
        assert!(is_committed(fixture).await);
        assert!(fixture.is_free("a").await);
        assert!(context.is_lost(), "the hold has ended");
        assert_eq!(reason_of(context.ensure_held()), LossReason::Gone);
        sleep(Duration::from_secs(3)).await;
        Ok(7)
    }

    let fixture = prepared().await;
    let done = timeout(AMPLE, work(&fixture.provider, &fixture)).await.unwrap();
    assert_eq!(done.unwrap(), 7);
}

/// The release is the last statement of the transaction, also for a set, and the end of the hold sends nothing.
#[tokio::test]
async fn the_release_costs_one_statement() {
    let one = (1, false);
    for ((locks, permit), is_dropped) in [(one, false), (one, true), ((3, false), false), ((1, true), true)] {
        let fixture = prepared().await;
        let (database, commands) = fixture.recorded_database().await;
        let provider = LockProvider::new(&database);
        assert_released(&provider.lock("warm")).await;
        let mut session = database.client().start_session().await.unwrap();
        if permit {
            let permit = provider.semaphore("exports", 5).await.unwrap();
            commands.clear();
            begin(&fixture, &mut session).await;
            permit.context().commit_and_release(&mut session).await.unwrap();
            drop(permit);
        } else {
            let set = provider.lock_all((0..locks).map(|number| format!("lock:{number}")));
            let guard = set.acquire().await.unwrap();
            commands.clear();
            begin(&fixture, &mut session).await;
            guard.commit_and_release(&mut session).await.unwrap();
            if is_dropped {
                drop(guard);
            } else {
                guard.release().await.expect("the hold has ended well");
            }
        }
        // Releases in the background have ended after it.
        provider.shutdown().await;
        let mut sent = commands.take();
        sent.retain(|command| !command.keys().any(|key| key.starts_with("list")));
        let mut expected = vec!["insert", "update", "commitTransaction"];
        expected.extend(names(&sent).iter().filter(|name| **name == "endSessions"));
        assert_eq!(names(&sent), expected, "{locks} {permit} {is_dropped}");
        assert_eq!(sent[1].get_array("updates").unwrap().len(), 1);
        let free = doc! { "lockId": "", "expiresAt": { "$lte": mongodb::bson::DateTime::now() } };
        let freed = fixture.locks().count_documents(free).await.unwrap();
        // The lock that has opened the connections is free as well.
        assert_eq!(freed, locks + 1, "{locks} {permit} {is_dropped}");
        assert!(is_committed(&fixture).await);
    }
}

/// The lease goes on until the minimum hold is over.
#[tokio::test]
async fn the_minimum_hold_applies() {
    let min_hold = Duration::from_secs(2);
    let (fixture, guard, mut session) = holder_in_transaction(|lock| lock.min_hold(min_hold)).await;
    guard.commit_and_release(&mut session).await.unwrap();
    let document = fixture.document("a").await.unwrap();
    let lock_id = document.get_str("lockId").unwrap();
    assert!(lock_id.starts_with("kept:"), "{lock_id}");
    let lasts = millis(&document, "expiresAt") - millis(&document, "acquiredAt");
    assert_eq!(lasts, 2000);
    guard.release().await.unwrap();
    assert_released(&fixture.rival().lock("a")).await;
}

/// Another holder has taken one lock of the set over: nothing is committed, and nothing is released.
#[tokio::test]
async fn a_set_of_which_a_lock_is_lost_commits_nothing() {
    for before in [true, false] {
        let fixture = prepared().await;
        let set = fixture.provider.lock_all(["a", "b", "c"]);
        let guard = set.acquire().await.unwrap();
        let mut session = session(&fixture).await;
        let held = fixture.document("c").await.unwrap();
        if !before {
            begin(&fixture, &mut session).await;
        }
        let rival = take_over(&fixture, "b").await;
        if before {
            begin(&fixture, &mut session).await;
        }
        let refused = guard.commit_and_release(&mut session).await;
        assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
        assert!(!is_committed(&fixture).await);
        assert_eq!(fixture.document("c").await.unwrap(), held);
        rival.release().await.unwrap();
        assert!(guard.release().await.is_err());
    }
}

/// A call of a set releases what it has acquired. What it has joined is kept, and guards the commit.
#[tokio::test]
async fn what_a_call_has_joined_is_kept() {
    let fixture = prepared().await;
    let provider = &fixture.provider;
    let body = async |outer: LockContext| {
        let inner = provider.lock_all(["a", "b", "c"]).run(async |context| {
            let mut session = session(&fixture).await;
            begin(&fixture, &mut session).await;
            context.commit_and_release(&mut session).await?;
            for (name, free) in [("a", false), ("b", true), ("c", true)] {
                assert_eq!(fixture.is_free(name).await, free, "{name}");
            }
            Ok::<_, LockError>(())
        });
        inner.await?;
        outer.ensure_held()?;
        // The joined lock is lost: it is a condition of the commit.
        let lost = provider.lock_all(["a", "b"]).run(async |context| {
            let mut session = session(&fixture).await;
            begin_with(&fixture, &mut session, 2).await;
            take_over(&fixture, "a").await.release().await?;
            context.commit_and_release(&mut session).await
        });
        assert!(matches!(lost.await, Err(LockError::Lost { .. })));
        assert!(outer.is_lost());
        Ok::<_, LockError>(())
    };
    let ended = timeout(AMPLE, provider.lock("a").run(body)).await.unwrap();
    // The loss comes after the body.
    assert!(matches!(ended, Ok(()) | Err(LockError::Lost { .. })), "{ended:?}");
    assert_eq!(accounts(&fixture).count_documents(doc! {}).await.unwrap(), 1);
    assert_released(&fixture.rival().lock("b")).await;
}

/// The enclosing call needs the lock: the transaction of a joined call is aborted. The enclosing call can release it.
#[tokio::test]
async fn a_joined_call_commits_nothing() {
    let fixture = prepared().await;
    let lock = fixture.provider.lock("a");
    let outer = async |outer: LockContext| {
        let inner = lock.run(async |inner| {
            let mut session = session(&fixture).await;
            begin(&fixture, &mut session).await;
            assert_joined(&inner.commit_and_release(&mut session).await);
            let next = session.start_transaction().await;
            next.expect("the transaction has ended");
            session.abort_transaction().await?;
            assert!(!is_committed(&fixture).await);
            outer.ensure_held()?;
            begin(&fixture, &mut session).await;
            outer.commit_and_release(&mut session).await
        });
        inner.await?;
        assert!(fixture.is_free("a").await);
        Ok::<_, LockError>(())
    };
    timeout(AMPLE, lock.run(outer)).await.unwrap().unwrap();
    assert!(is_committed(&fixture).await);
}

/// Data and release are one: after a commit that the server has aborted the hold goes on, and the driver repeats the
/// transaction under it.
#[tokio::test]
async fn an_aborted_commit_leaves_the_hold_to_a_repetition() {
    const NO_SUCH_TRANSACTION: i32 = 251;
    let fixture = prepared().await;
    let aborted = FailPoint::on(&["commitTransaction"]).error_code(NO_SUCH_TRANSACTION);
    let aborted = aborted.error_labels(&[TRANSIENT_TRANSACTION_ERROR]).times(2);
    // A fail point is enabled when no other test uses one, so nothing is held while this test waits for that.
    let (mut session, failing) = failing_session(&fixture, aborted).await;
    let client = session.client().clone();
    let guard = fixture.provider.lock("a").await.unwrap();
    let held = fixture.document("a").await.unwrap();
    begin(&fixture, &mut session).await;
    let refused = guard.commit_and_release(&mut session).await;
    assert!(
        matches!(&refused, Err(LockError::Mongo(error)) if error.contains_label(TRANSIENT_TRANSACTION_ERROR)),
        "{refused:?}"
    );
    // What the fail point has left open ends with the session.
    drop(session);
    guard.ensure_held().unwrap();
    assert_eq!(fixture.document("a").await.unwrap(), held);
    assert!(!is_committed(&fixture).await);

    let (lock, mut made) = (guard.context(), 0);
    let mut session = client.start_session().await.unwrap();
    let accounts = accounts_of(&fixture, &session);
    let done: mongodb::error::Result<()> = session
        .start_transaction()
        .and_run2(async |session| {
            made += 1;
            insert(&accounts, session, 1).await?;
            Ok(lock.commit_and_release(session).await?)
        })
        .await;
    must(failing.clear().await);
    done.unwrap();
    assert_eq!(made, 2);
    assert!(is_committed(&fixture).await);
    assert!(fixture.is_free("a").await);
    guard.release().await.unwrap();
}

/// The outcome of the commit is not known, and the server has made it: renewals that find no claim are no loss, and the hold
/// ends at its deadline.
#[tokio::test]
async fn a_hold_whose_commit_has_no_known_outcome_ends_at_its_deadline() {
    const MAX_TIME_EXPIRED: i32 = 50;
    let fixture = prepared().await;
    let unconfirmed = FailPoint::on(&["commitTransaction"])
        .write_concern_error(MAX_TIME_EXPIRED, "operation exceeded time limit");
    let (mut session, failing) = failing_session(&fixture, unconfirmed).await;
    let often = renewing(&fixture.provider, Duration::from_millis(200));
    let lock = often.lock("a").expiry(Duration::from_secs(2));
    let guard = lock.acquire().await.unwrap();
    let ended = released(&fixture, &guard, &mut session).await;
    let Err(LockError::Mongo(unknown)) = ended else {
        panic!("{ended:?}");
    };
    must(failing.clear().await);
    assert!(unknown.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT));
    assert!(is_committed(&fixture).await);
    assert!(fixture.is_free("a").await);
    timeout(AMPLE, guard.lost()).await.unwrap();
    // A renewal that counted as a loss would give another reason.
    assert_eq!(reason_of(guard.release().await), LossReason::Expired);
}

/// A replica set with one member can never confirm a transaction for two: the server has committed it all the same. What it was to
/// end has ended, and the holder knows it.
#[tokio::test]
async fn a_commit_whose_write_concern_cannot_be_met_has_ended_the_hold() {
    for way in [Way::Releases, Way::Marks] {
        let fixture = prepared().await;
        let guard = way.lock(&fixture, "a").await.unwrap();
        let mut session = session(&fixture).await;
        let two = WriteConcern::builder().w(Acknowledgment::Nodes(2)).build();
        session.start_transaction().write_concern(two).await.unwrap();
        insert(&accounts(&fixture), &mut session, 1).await.unwrap();
        let ended = way.commit(&guard.context(), &mut session).await;
        assert!(
            matches!(&ended, Err(LockError::Mongo(error)) if error.labels().is_empty()),
            "{ended:?}"
        );
        assert!(is_committed(&fixture).await);
        assert!(guard.is_lost(), "{way:?}");
        assert_eq!(fixture.is_free("a").await, way == Way::Releases);
        guard.release().await.expect("the hold has ended well");
    }
}

/// A waiter in another process and one in this process get the lock long before a lease would end.
#[tokio::test]
async fn those_who_wait_get_the_lock() {
    let fixture = prepared().await;
    let provider = patient(fixture.database());
    let guard = provider.lock("a").acquire().await.unwrap();
    let token = guard.fencing_token();
    let waiting = [fixture.rival(), provider.clone()].map(|provider| {
        tokio::spawn(async move {
            let guard = provider.lock("a").acquire().await?;
            let token = guard.fencing_token();
            guard.release().await?;
            Ok::<_, LockError>(token)
        })
    });
    sleep(Duration::from_millis(300)).await;
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let task = tokio::spawn(async move { (guard.commit_and_release(&mut session).await, guard) });
    let (ended, guard) = task.await.unwrap();
    ended.unwrap();
    for waiter in waiting {
        let next = timeout(BEFORE_EXPIRY, waiter).await;
        let next = next.expect("it does not wait for the lease");
        assert!(next.unwrap().unwrap() > token);
    }
    guard.release().await.unwrap();
}

/// Work that may succeed only once is not marked as done, and the guard does not say so.
#[tokio::test]
async fn a_lock_with_once_is_released_without_a_mark() {
    let (fixture, guard, mut session) = holder_in_transaction(DistributedLock::once).await;
    guard.commit_and_release(&mut session).await.unwrap();
    let unmarked = guard.done().await;
    assert!(matches!(unmarked, Err(LockError::Lost { .. })), "{unmarked:?}");
    let body = async |context: LockContext| {
        begin_with(&fixture, &mut session, 2).await;
        context.commit_and_release(&mut session).await
    };
    let lock = fixture.provider.lock("a").once();
    timeout(AMPLE, lock.run(body)).await.unwrap().unwrap();
    assert_released(&fixture.rival().lock("a")).await;
}

/// Two transactions under one hold, committed at the same time: one of them takes effect, and its success stays.
#[tokio::test]
async fn of_two_commits_at_a_time_one_is_made() {
    let fixture = prepared().await;
    for number in 0..20 {
        let guard = fixture.provider.lock("a").await.unwrap();
        let (mut first, mut second) = (session(&fixture).await, session(&fixture).await);
        begin_with(&fixture, &mut first, 2 * number).await;
        begin_with(&fixture, &mut second, 2 * number + 1).await;
        let context = guard.context();
        let both = tokio::join!(
            guard.commit_and_release(&mut first),
            context.commit_and_release(&mut second)
        );
        let made = [&both.0, &both.1].map(|ended| u64::from(ended.is_ok()));
        assert_eq!(made.iter().sum::<u64>(), 1, "{both:?}");
        guard.release().await.expect("the hold has ended well");
        let committed = accounts(&fixture).count_documents(doc! {}).await.unwrap();
        assert_eq!(committed, u64::try_from(number).unwrap() + 1);
        // Whatever comes later is refused.
        let late = context.commit_and_release(&mut first).await;
        assert!(matches!(late, Err(LockError::NoTransaction { .. })), "{late:?}");
        begin_with(&fixture, &mut second, 1000).await;
        let late = context.commit_and_release(&mut second).await;
        assert!(matches!(late, Err(LockError::Lost { .. })), "{late:?}");
    }
}

/// The lease ends during a slow commit, or the provider is shut down: the commit decides, and it releases the lock.
#[tokio::test]
async fn a_slow_commit_outlives_the_lease_and_a_shutdown() {
    for shuts_down in [false, true] {
        let fixture = prepared().await;
        let (mut session, blocking) = slow_session(&fixture).await;
        let lock = fixture.provider.lock("a").expiry(Duration::from_secs(2));
        let guard = lock.acquire().await.unwrap();
        let shutdown = async {
            if shuts_down {
                sleep(Duration::from_millis(500)).await;
                fixture.provider.shutdown().await;
            }
        };
        let committing = async {
            let (committed, ()) = tokio::join!(released(&fixture, &guard, &mut session), shutdown);
            committed.unwrap();
        };
        timeout(AMPLE, committing).await.unwrap();
        must(blocking.clear().await);
        guard.release().await.expect("the hold has ended well");
        assert!(is_committed(&fixture).await);
        let other = patient(fixture.database());
        assert_released(&other.lock("a")).await;
    }
}

//! Transactions that are committed only if the lock is still held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::{TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::ClientOptions;
use mongodb::{Client, ClientSession, Collection};
use mongolock::{
    DistributedLock, IndexState, LockContext, LockError, LockGuard, LockProvider, distributed_lock,
};
use mongolock_tests::{FailPoint, FailPointGuard, Server, ServerOptions, eventually, must};
use tokio::time::{Instant, sleep};

use crate::fixture::{AMPLE, Fixture, names, recorded};

/// Both collections and their indexes are there: MongoDB begins no transaction on one that is being made.
async fn prepared() -> Fixture {
    let fixture = Fixture::mongodb().await;
    assert_eq!(fixture.provider.admin().index_state().await, IndexState::Ready);
    fixture.database().create_collection("accounts").await.unwrap();
    fixture
}

async fn session(fixture: &Fixture) -> ClientSession {
    fixture.database().client().start_session().await.unwrap()
}

fn accounts(fixture: &Fixture) -> Collection<Document> {
    fixture.database().collection("accounts")
}

/// Begins a transaction that has written, and is to be committed.
async fn begin(fixture: &Fixture, session: &mut ClientSession) {
    session.start_transaction().await.unwrap();
    let database = session.client().database(fixture.db().name());
    let accounts = database.collection::<Document>("accounts");
    accounts
        .insert_one(doc! { "_id": 1 })
        .session(session)
        .await
        .unwrap();
}

async fn is_committed(fixture: &Fixture) -> bool {
    accounts(fixture)
        .find_one(doc! { "_id": 1 })
        .await
        .unwrap()
        .is_some()
}

/// Takes the lock away from its holder behind his back, and gives it to a rival.
async fn take_over(fixture: &Fixture, name: &str) -> LockGuard {
    let freed = doc! { "$set": { "lockId": "", "expiresAt": mongodb::bson::DateTime::from_millis(0) } };
    fixture
        .locks()
        .update_one(doc! { "_id": name }, freed)
        .await
        .unwrap();
    fixture.rival().lock(name).acquire().await.unwrap()
}

async fn refused_as_lost(fixture: &Fixture, guard: &LockGuard, session: &mut ClientSession) {
    let refused = guard.context().commit(session).await;
    assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    assert!(guard.is_lost());
    assert!(!is_committed(fixture).await);
    // The transaction is over: another can begin.
    session.start_transaction().await.unwrap();
}

#[tokio::test]
async fn a_holder_commits_and_renews() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let acquired = fixture.document("a").await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    guard.context().commit(&mut session).await.unwrap();
    assert!(is_committed(&fixture).await);
    let committed = fixture.document("a").await.unwrap();
    assert!(committed.get_datetime("expiresAt").unwrap() > acquired.get_datetime("expiresAt").unwrap());
    for same in ["_id", "lockId", "acquiredAt", "fencingToken"] {
        assert_eq!(committed.get(same), acquired.get(same));
    }
    guard.release().await.unwrap();
}

/// The guard is one statement, and it is the last.
#[tokio::test]
async fn it_costs_one_statement() {
    let fixture = prepared().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let mut session = database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let accounts = database.collection::<Document>("accounts");
    accounts
        .insert_one(doc! { "_id": 1 })
        .session(&mut session)
        .await
        .unwrap();
    guard.context().commit(&mut session).await.unwrap();
    let sent = commands.take();
    assert_eq!(names(&sent), ["insert", "update", "commitTransaction"]);
    assert_eq!(sent[1].get_str("update"), Ok("distributed_locks"));
    guard.release().await.unwrap();
}

/// Somebody has taken the lock after the transaction began: it sees the holder's own claim still.
#[tokio::test]
async fn a_takeover_after_the_beginning_is_a_conflict() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let thief = take_over(&fixture, "a").await;
    refused_as_lost(&fixture, &guard, &mut session).await;
    assert!(!thief.is_lost());
    thief.release().await.expect("nothing of it was touched");
}

/// The look that tells a takeover from a renewal reads what the primary has now: the new holder has the lock whether a
/// majority has confirmed it by then or not.
#[tokio::test]
async fn the_look_after_a_conflict_does_not_wait_for_a_majority() {
    let fixture = prepared().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let guard = LockProvider::new(&database).lock("a").await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let thief = take_over(&fixture, "a").await;
    refused_as_lost(&fixture, &guard, &mut session).await;
    let mut sent = commands.take();
    sent.retain(|command| command.contains_key("find"));
    let [look] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(look.get_str("find"), Ok("distributed_locks"));
    let concern = look.get_document("readConcern").unwrap();
    assert_eq!(concern.get_str("level"), Ok("local"), "{look}");
    thief.release().await.unwrap();
}

/// Somebody has taken the lock before the transaction began: it sees his claim.
#[tokio::test]
async fn a_takeover_before_the_beginning_is_seen() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let thief = take_over(&fixture, "a").await;
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    refused_as_lost(&fixture, &guard, &mut session).await;
    thief.release().await.unwrap();
}

/// The lock was taken and is free again, or its document is gone.
#[tokio::test]
async fn a_claim_that_is_gone_is_lost() {
    let fixture = prepared().await;
    let mut session = session(&fixture).await;
    let guard = fixture.provider.lock("a").await.unwrap();
    begin(&fixture, &mut session).await;
    take_over(&fixture, "a").await.release().await.unwrap();
    refused_as_lost(&fixture, &guard, &mut session).await;
    session.abort_transaction().await.unwrap();

    let guard = fixture.provider.lock("b").await.unwrap();
    begin(&fixture, &mut session).await;
    fixture.locks().delete_one(doc! { "_id": "b" }).await.unwrap();
    refused_as_lost(&fixture, &guard, &mut session).await;
}

/// A lease that is over by the holder's own clock: nothing is asked.
#[tokio::test]
async fn a_lost_lock_commits_nothing() {
    let fixture = prepared().await;
    let lock = fixture
        .provider
        .lock("a")
        .expiry(Duration::from_millis(200))
        .max_hold(Duration::ZERO);
    let guard = lock.acquire().await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    guard.lost().await;
    refused_as_lost(&fixture, &guard, &mut session).await;
}

/// Between the guard and the commit nobody takes the lock, not even when its lease had ended before.
#[tokio::test]
async fn nobody_takes_the_lock_before_the_commit() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let held = || doc! { "_id": "a" };
    let set_end = |end: i64| vec![doc! { "$set": { "expiresAt": { "$add": ["$$NOW", end] } } }];
    fixture.locks().update_one(held(), set_end(-1000)).await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    // What the guard does, without the commit.
    let touched = fixture
        .locks()
        .update_one(held(), set_end(30_000))
        .session(&mut session)
        .await;
    assert_eq!(touched.unwrap().modified_count, 1);
    let rival = fixture.rival().lock("a");
    let taking = tokio::spawn(async move { rival.try_acquire().await });
    sleep(Duration::from_millis(300)).await;
    assert!(!taking.is_finished(), "it waits for the end of the transaction");
    session.commit_transaction().await.unwrap();
    assert!(taking.await.unwrap().unwrap().is_none(), "the lease was renewed");
    guard.release().await.unwrap();
}

/// A renewal of the lock itself after the transaction began: an error that says "make it again", and the driver does.
#[tokio::test]
async fn ones_own_renewal_is_a_passing_conflict() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let later = doc! { "$set": { "expiresAt": mongodb::bson::DateTime::from_millis(i64::MAX / 2000) } };
    let renew = async || {
        fixture
            .locks()
            .update_one(doc! { "_id": "a" }, later.clone())
            .await
            .unwrap()
    };
    renew().await;
    let refused = guard.context().commit(&mut session).await;
    let Err(LockError::Mongo(error)) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}");
    assert!(!guard.is_lost());
    assert!(!is_committed(&fixture).await);

    let (accounts, lock, mut made) = (accounts(&fixture), guard.context(), 0);
    let done: mongodb::error::Result<()> = session
        .start_transaction()
        .and_run2(async |session| {
            made += 1;
            accounts
                .insert_one(doc! { "_id": 1 })
                .session(&mut *session)
                .await?;
            if made == 1 {
                let sooner = vec![doc! { "$set": { "expiresAt": { "$add": ["$expiresAt", -1] } } }];
                fixture.locks().update_one(doc! { "_id": "a" }, sooner).await?;
            }
            Ok(lock.commit(session).await?)
        })
        .await;
    done.unwrap();
    assert_eq!(made, 2);
    assert!(is_committed(&fixture).await);
    guard.release().await.unwrap();
}

/// An error that passes through the driver's callback is the same at the other end.
#[tokio::test]
async fn a_loss_passes_through_the_driver() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let thief = take_over(&fixture, "a").await;
    let (accounts, lock, mut made) = (accounts(&fixture), guard.context(), 0);
    let refused: mongodb::error::Result<()> = session(&fixture)
        .await
        .start_transaction()
        .and_run2(async |session| {
            made += 1;
            accounts
                .insert_one(doc! { "_id": 1 })
                .session(&mut *session)
                .await?;
            Ok(lock.commit(session).await?)
        })
        .await;
    let refused = LockError::from(refused.unwrap_err());
    assert!(matches!(refused, LockError::Lost { .. }), "{refused:?}");
    assert_eq!(made, 1, "it is not repeated");
    assert!(!is_committed(&fixture).await);
    thief.release().await.unwrap();
}

#[distributed_lock(name = "transfer", provider = provider, expiry = "1s")]
async fn transfer(provider: &LockProvider, accounts: Collection<Document>) -> Result<(), LockError> {
    let lock = LockContext::current().unwrap();
    let mut session = accounts.client().start_session().await?;
    let transaction = session.start_transaction();
    transaction
        .and_run2(async move |session| {
            accounts
                .insert_one(doc! { "_id": 1 })
                .session(&mut *session)
                .await?;
            Ok(lock.commit(session).await?)
        })
        .await?;
    Ok(())
}

/// As it is used: under the attribute, with the driver's own repetition, in a task.
#[tokio::test]
async fn it_works_under_the_attribute_in_a_task() {
    let fixture = prepared().await;
    let (provider, accounts) = (fixture.provider.clone(), accounts(&fixture));
    tokio::spawn(async move { transfer(&provider, accounts).await })
        .await
        .unwrap()
        .unwrap();
    assert!(is_committed(&fixture).await);
}

/// The lease ends while the commit is under way: the body is not broken off, and what is committed is a success.
#[tokio::test]
async fn a_commit_slower_than_the_lease_is_no_loss() {
    let fixture = prepared().await;
    let (client, blocking) = with_a_slow_commit(&fixture).await;
    let accounts = client
        .database(fixture.db().name())
        .collection::<Document>("accounts");
    transfer(&fixture.provider, accounts).await.unwrap();
    must(blocking.clear().await);
    assert!(is_committed(&fixture).await);
}

/// A body that does not end with its commit is broken off after it, if the lock is lost.
#[tokio::test]
async fn after_the_commit_a_loss_ends_the_body() {
    #[distributed_lock(name = "transfer", provider = provider, expiry = "1s")]
    async fn go_on(provider: &LockProvider, accounts: Collection<Document>) -> Result<(), LockError> {
        let mut session = accounts.client().start_session().await?;
        session.start_transaction().await?;
        accounts
            .insert_one(doc! { "_id": 1 })
            .session(&mut session)
            .await?;
        LockContext::current().unwrap().commit(&mut session).await?;
        std::future::pending().await
    }

    let fixture = prepared().await;
    let (client, blocking) = with_a_slow_commit(&fixture).await;
    let accounts = client.database(fixture.db().name()).collection("accounts");
    let ended = tokio::time::timeout(AMPLE, go_on(&fixture.provider, accounts))
        .await
        .unwrap();
    assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    must(blocking.clear().await);
    assert!(is_committed(&fixture).await);
}

/// Neither does the loss of a lock around the one that guards it.
#[tokio::test]
async fn the_loss_of_an_outer_lock_does_not_break_off_a_commit() {
    let fixture = prepared().await;
    let (client, blocking) = with_a_slow_commit(&fixture).await;
    let mut session = client.start_session().await.unwrap();
    let (outer, inner) = (brief(&fixture, "outer"), fixture.provider.lock("inner"));
    let committed = AtomicBool::new(false);
    let ended: Result<(), LockError> = outer
        .run(async |_| {
            inner
                .run(async |lock| {
                    begin(&fixture, &mut session).await;
                    lock.commit(&mut session).await?;
                    committed.store(true, Ordering::Relaxed);
                    Ok::<_, LockError>(())
                })
                .await
        })
        .await;
    assert!(
        matches!(&ended, Err(LockError::Lost { name, .. }) if name == "outer"),
        "{ended:?}"
    );
    assert!(committed.into_inner(), "it came to its end");
    must(blocking.clear().await);
    assert!(is_committed(&fixture).await);
}

/// A body that waits for something else is broken off when the commit in another task has ended.
#[tokio::test]
async fn a_commit_in_another_task_holds_the_body_no_longer_than_it_takes() {
    let fixture = prepared().await;
    let (client, blocking) = with_a_slow_commit(&fixture).await;
    let mut session = client.start_session().await.unwrap();
    let (begins, begun) = tokio::sync::oneshot::channel();
    let call = brief(&fixture, "a").run(async |lock| {
        begin(&fixture, &mut session).await;
        tokio::spawn(async move {
            let done = lock.commit(&mut session).await;
            begins.send(done).unwrap();
        });
        std::future::pending::<Result<(), LockError>>().await
    });
    let ended = tokio::time::timeout(AMPLE, call)
        .await
        .expect("the loss ends the body");
    assert!(matches!(ended, Err(LockError::Lost { .. })), "{ended:?}");
    begun.await.unwrap().expect("the commit had ended by then");
    must(blocking.clear().await);
    assert!(is_committed(&fixture).await);
}

/// A lock whose lease ends while a slow commit is under way, and is not renewed.
fn brief(fixture: &Fixture, name: &str) -> DistributedLock {
    let lock = fixture.provider.lock(name).expiry(Duration::from_secs(1));
    lock.max_hold(Duration::ZERO)
}

/// A client one of whose commits takes longer than the leases here.
async fn with_a_slow_commit(fixture: &Fixture) -> (Client, FailPointGuard) {
    let (client, own) = client_of_its_own(fixture).await;
    let commit = FailPoint::on(&["commitTransaction"]).app_name(&own);
    let slow = commit.times(1).block(Duration::from_secs(3));
    (client, must(slow.enable(fixture.db().uri()).await))
}

/// A client that fail points can tell from all others, and its name.
async fn client_of_its_own(fixture: &Fixture) -> (Client, String) {
    let own = format!("{}_commits", fixture.db().name());
    let mut options = ClientOptions::parse(fixture.db().uri()).await.unwrap();
    options.app_name = Some(own.clone());
    (Client::with_options(options).unwrap(), own)
}

/// The end of a lease never moves back, and always moves: a write that changes nothing would guard nothing.
#[tokio::test]
async fn the_guard_changes_the_document_whatever_it_says() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let far = vec![doc! { "$set": { "expiresAt": { "$add": ["$$NOW", 3_600_000] } } }];
    fixture
        .locks()
        .update_one(doc! { "_id": "a" }, far)
        .await
        .unwrap();
    let ends = async || {
        let document = fixture.document("a").await.unwrap();
        document.get_datetime("expiresAt").unwrap().timestamp_millis()
    };
    let before = ends().await;
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    guard.context().commit(&mut session).await.unwrap();
    assert_eq!(ends().await, before + 1);
    guard.release().await.unwrap();
}

/// The document is blocked for the length of the commit only: renewals of other locks do not wait for transactions.
#[tokio::test]
async fn a_long_transaction_keeps_no_renewal_waiting() {
    let fixture = prepared().await;
    let interval = Duration::from_millis(100);
    let lock = |name: &str| {
        fixture
            .provider
            .lock(name)
            .expiry(Duration::from_secs(3))
            .renew_interval(interval)
    };
    let guarded = fixture.provider.lock("guarded").acquire().await.unwrap();
    let other = lock("other").acquire().await.unwrap();
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let begun = Instant::now();
    let renewed = async || {
        let document = fixture.document("other").await.unwrap();
        let (end, start) = (
            document.get_datetime("expiresAt").unwrap(),
            document.get_datetime("acquiredAt").unwrap(),
        );
        (end.timestamp_millis() - start.timestamp_millis() > 3000 + 1000).then_some(())
    };
    must(eventually(AMPLE, "renewals for a second", renewed).await);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    guarded.context().commit(&mut session).await.unwrap();
    assert!(is_committed(&fixture).await);
    guarded.release().await.unwrap();
    other.release().await.unwrap();
}

/// Beyond `max_hold` the lease is not renewed any more, and its document is changed all the same.
#[tokio::test]
async fn it_guards_beyond_the_cap_as_well() {
    let fixture = prepared().await;
    let lock = fixture.provider.lock("a").max_hold(Duration::ZERO);
    let guard = lock.acquire().await.unwrap();
    let ends = async || {
        let document = fixture.document("a").await.unwrap();
        document.get_datetime("expiresAt").unwrap().timestamp_millis()
    };
    let before = ends().await;
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    guard.context().commit(&mut session).await.unwrap();
    assert_eq!(ends().await, before + 1);
    let remaining = guard.remaining();
    assert!(remaining < Duration::from_secs(30));

    begin_second(&fixture, &mut session).await;
    let thief = take_over(&fixture, "a").await;
    let refused = guard.context().commit(&mut session).await;
    assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
    thief.release().await.unwrap();
}

async fn begin_second(fixture: &Fixture, session: &mut ClientSession) {
    session.start_transaction().await.unwrap();
    accounts(fixture)
        .insert_one(doc! { "_id": 2 })
        .session(session)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_transaction_from_before_the_lock_is_refused() {
    let fixture = prepared().await;
    let mut session = session(&fixture).await;
    begin(&fixture, &mut session).await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let refused = guard.context().commit(&mut session).await;
    assert!(
        matches!(&refused, Err(LockError::NoTransaction { reason, .. }) if reason.contains("under the lock")),
        "{refused:?}"
    );
    assert!(!guard.is_lost());
    assert!(!is_committed(&fixture).await);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn without_a_transaction_there_is_nothing_to_guard() {
    let fixture = prepared().await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let mut session = session(&fixture).await;
    let none = guard.context().commit(&mut session).await;
    assert!(
        matches!(&none, Err(LockError::NoTransaction { name, reason }) if name == "a" && reason.contains("standalone")),
        "{none:?}"
    );

    let memory = Fixture::memory().provider.lock("a").await.unwrap();
    let none = memory.context().commit(&mut session).await;
    assert!(
        matches!(&none, Err(LockError::NoTransaction { reason, .. }) if reason.contains("in memory")),
        "{none:?}"
    );
    guard.release().await.unwrap();
}

/// A standalone server has no transactions, and says so at the first statement: here or before.
#[tokio::test]
async fn a_standalone_server_is_a_clear_error() {
    let server = must(Server::start(ServerOptions::standalone()).await);
    let client = must(server.client().await);
    let provider = LockProvider::new(&client.database("app"));
    let guard = provider.lock("a").await.unwrap();
    let mut session = client.start_session().await.unwrap();
    for begins in [true, false] {
        if begins {
            session.start_transaction().await.unwrap();
        }
        let none = guard.context().commit(&mut session).await;
        assert!(
            matches!(&none, Err(LockError::NoTransaction { name, reason }) if name == "a" && reason.contains("standalone")),
            "{none:?}"
        );
    }
    guard.release().await.unwrap();
}

/// A commit whose answer is an error that leaves its outcome open is repeated, as the driver's rules say.
#[tokio::test]
async fn an_unknown_outcome_is_asked_for_again() {
    let fixture = prepared().await;
    let (client, own) = client_of_its_own(&fixture).await;
    let guard = fixture.provider.lock("a").await.unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let accounts = client
        .database(fixture.db().name())
        .collection::<Document>("accounts");
    accounts
        .insert_one(doc! { "_id": 1 })
        .session(&mut session)
        .await
        .unwrap();
    // Made, but not confirmed by a majority in time: more often than the driver repeats by itself.
    let unconfirmed =
        FailPoint::on(&["commitTransaction"]).write_concern_error(64, "waiting for replication timed out");
    let point = unconfirmed.app_name(&own).times(3);
    let failing = must(point.enable(fixture.db().uri()).await);
    guard.context().commit(&mut session).await.unwrap();
    must(failing.clear().await);
    assert!(is_committed(&fixture).await);
    guard.release().await.unwrap();
}

/// The caller's own limit for the commit has passed: that is the answer, whatever has become of the commit. It is not
/// asked for again on his behalf.
#[tokio::test]
async fn a_commit_that_is_out_of_time_is_not_repeated() {
    const MAX_TIME_EXPIRED: i32 = 50;
    let commit = || FailPoint::on(&["commitTransaction"]);
    let not_made = commit().error_code(MAX_TIME_EXPIRED);
    let unconfirmed = commit().write_concern_error(MAX_TIME_EXPIRED, "operation exceeded time limit");
    for (point, is_made) in [(not_made, false), (unconfirmed, true)] {
        let fixture = prepared().await;
        let (client, own) = client_of_its_own(&fixture).await;
        let guard = fixture.provider.lock("a").await.unwrap();
        let mut session = client.start_session().await.unwrap();
        begin(&fixture, &mut session).await;
        // Once: a second commit would succeed.
        let failing = must(point.app_name(&own).enable(fixture.db().uri()).await);
        let ended = guard.context().commit(&mut session).await;
        must(failing.clear().await);
        let Err(LockError::Mongo(error)) = ended else {
            panic!("{ended:?}");
        };
        assert!(error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT), "{error}");
        assert_eq!(is_committed(&fixture).await, is_made);
        assert!(!guard.is_lost());
        // Whoever wants to know asks again.
        session.commit_transaction().await.unwrap();
        assert!(is_committed(&fixture).await);
        guard.release().await.unwrap();
    }
}

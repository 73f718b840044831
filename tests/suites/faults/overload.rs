//! A server that rejects commands for overload, as MongoDB 8.2 and later do. The client is that of an application, so the
//! driver repeats rejected commands after pauses of its own.

use std::time::Duration;

use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, FailPoint, Purpose, recorded, test_db};
use tokio::time::{Instant, sleep, timeout};

use crate::callers::{Callers, LEASE, hold, release_all};
use crate::{
    acquire_soon, assert_free, committed_documents, fail, patient, transaction, until_indexed, warm_up,
    with_expiry,
};

/// The commands with which locks are acquired, renewed and released.
const COMMANDS: [&str; 3] = ["update", "findAndModify", "find"];

/// While everything is rejected, calls for free locks say so, and the provider sends few requests. They are served soon after
/// the end.
#[tokio::test]
async fn acquire_requests_give_way_and_calls_say_why_they_fail() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = patient(&database);
    warm_up(&provider).await;
    assert_eq!(provider.health().await.overloaded_since, None);
    let point = fail(&db, FailPoint::rejecting(&COMMANDS).always()).await;
    let locks = (0..16).map(|number| {
        let lock = provider.lock(format!("{LEASE}{number}"));
        lock.acquire_timeout(Duration::from_secs(2))
    });
    let callers = Callers::start(locks, Duration::from_millis(100));
    sleep(Duration::from_secs(4)).await;
    commands.clear();
    sleep(Duration::from_secs(4)).await;
    let sent = commands.take();
    let claims = sent
        .iter()
        .filter(|sent| sent.contains_key("findAndModify") && Purpose::of(sent) == Some(Purpose::Acquire))
        .count();
    // Fifteen acquire requests a second, and some at the edges. Each call that ends releases what has no reply yet.
    assert!(claims <= 72 && sent.len() <= 200, "{claims}, {}", sent.len());
    assert!(provider.health().await.overloaded_since.unwrap() > Duration::from_secs(4));
    let errors = callers.stop().await.errors;
    assert!(errors.len() >= 16);
    for error in &errors {
        assert!(error.to_string().starts_with("MongoDB is overloaded"), "{error}");
        assert!(error.help().contains("Retry later"), "{}", error.help());
    }
    point.clear().await.unwrap();
    let begun = Instant::now();
    let served = timeout(BEFORE_EXPIRY, hold(&provider, 16)).await;
    let guards = served.expect("they are served soon");
    println!(
        "{} commands in 4 s, {claims} acquire requests; served after {:?}",
        sent.len(),
        begun.elapsed()
    );
    release_all(guards).await;
}

/// B3: half of the statements that guard commits, and half of the commits, are rejected. Each commit is made, and once.
#[tokio::test]
async fn guarded_commits_are_repeated_while_the_server_rejects_them() {
    const COMMITS: u64 = 20;
    let db = test_db().await;
    // The driver repeats nothing itself.
    let (database, commands) = recorded(&db, &["maxAdaptiveRetries=0"]).await;
    database.create_collection("documents").await.unwrap();
    // A renewal between the beginning of a transaction and its statement is a conflict. None is due during this test.
    let provider = with_expiry(&database, Duration::from_secs(60 * 60));
    // A transaction that begins while the index is built is refused.
    until_indexed(&provider).await;
    let guard = acquire_soon(&provider, "committed").await;
    let point = fail(
        &db,
        FailPoint::rejecting(&["update", "commitTransaction"]).part(0.5),
    )
    .await;
    for _ in 0..COMMITS {
        let mut session = transaction(&database).await;
        let context = guard.context();
        let committed = timeout(AMPLE, context.commit(&mut session)).await;
        committed.expect("the commit ends").unwrap();
    }
    assert!(
        commands
            .failed()
            .iter()
            .any(|failed| failed.starts_with("commitTransaction"))
    );
    point.clear().await.unwrap();
    assert_eq!(committed_documents(&database).await, COMMITS);
    guard.release().await.unwrap();
}

/// Statements that guard a commit and are rejected for as long as the lease lasts commit nothing, and the error says that the
/// lock was lost. The server has rejected the end of the transaction as well, and does not keep it open: it would block a lock.
#[tokio::test]
async fn a_commit_that_is_rejected_until_the_lease_ends_is_not_made() {
    let db = test_db().await;
    let database = db.database();
    database.create_collection("documents").await.unwrap();
    let (expiry, never) = (Duration::from_secs(2), Duration::from_millis(1900));
    let builder = LockProvider::builder(database).acquire_timeout(AMPLE);
    let provider = builder.expiry(expiry).renew_interval(never).build().unwrap();
    until_indexed(&provider).await;
    let guard = provider.lock("first").await.unwrap();
    let both = provider.lock_all(["first", "second"]);
    let mut session = transaction(database).await;
    let (ends, ended) = tokio::sync::oneshot::channel();
    let mut refusing = None;
    let call = both.run(async |context| {
        // The locks have two leases, and the statement for the first one is run. Renewals are rejected as well.
        let point = FailPoint::rejecting(&["update", "findAndModify", "abortTransaction"]);
        refusing = Some(fail(&db, point.after(1)).await);
        // The loss cancels the body, and not the commit.
        tokio::spawn(async move { ends.send(context.commit(&mut session).await) });
        std::future::pending::<Result<(), LockError>>().await
    });
    let lost = guard.context().scope(call).await;
    assert!(matches!(lost, Err(LockError::Lost { .. })), "{lost:?}");
    let committed = timeout(AMPLE, ended).await.unwrap().unwrap();
    assert!(matches!(committed, Err(LockError::Lost { .. })), "{committed:?}");
    refusing.unwrap().clear().await.unwrap();
    assert_eq!(committed_documents(database).await, 0);
    drop(guard);
    // No transaction blocks the lock.
    assert_free(&provider, "first").await;
}

/// A commit that the server refuses is given up, and the transaction that is still open there blocks no lock.
#[tokio::test]
async fn a_commit_that_is_refused_leaves_no_transaction_open() {
    const BAD_VALUE: i32 = 2;
    let db = test_db().await;
    let database = db.database();
    database.create_collection("documents").await.unwrap();
    let provider = patient(database);
    // A transaction that begins while the index is built is refused.
    until_indexed(&provider).await;
    let refusal = FailPoint::on(&["commitTransaction"]).error_code(BAD_VALUE);
    let point = fail(&db, refusal).await;
    let guard = acquire_soon(&provider, "kept").await;
    let mut session = transaction(database).await;
    let context = guard.context();
    let committed = timeout(AMPLE, context.commit(&mut session)).await.unwrap();
    assert!(
        matches!(&committed, Err(LockError::Mongo(error))
        if !error.contains_label("UnknownTransactionCommitResult")),
        "{committed:?}"
    );
    point.clear().await.unwrap();
    assert!(!guard.is_lost());
    assert_eq!(committed_documents(database).await, 0);
    let soon = timeout(BEFORE_EXPIRY, guard.release()).await;
    soon.expect("no transaction blocks the lock").unwrap();
    // The session serves another transaction.
    let next = acquire_soon(&provider, "kept").await;
    session.start_transaction().await.unwrap();
    next.context().commit(&mut session).await.unwrap();
    next.release().await.unwrap();
}

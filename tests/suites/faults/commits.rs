//! Guarded commits whose messages are lost, or which the server rejects or refuses.

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongodb::{ClientSession, Database};
use mongolock::{LockError, LockGuard, LockProvider};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, FailPoint, Fault, Injected, must, recorded, test_db};
use tokio::time::{Instant, timeout};

use crate::{DEFAULT_EXPIRY, Proxied, acquire_soon, fail, patient, until_indexed, with_expiry};

/// A transaction that has written one document in the collection `documents`, which must exist.
async fn transaction(database: &Database) -> ClientSession {
    let mut session = database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let documents = database.collection("documents");
    let insert = documents.insert_one(doc! {});
    insert.session(&mut session).await.unwrap();
    session
}

/// The number of documents that transactions have committed.
async fn committed_documents(database: &Database) -> u64 {
    let documents = database.collection::<Document>("documents");
    documents.count_documents(doc! {}).await.unwrap()
}

/// A provider on a database with the collection, which may begin transactions.
async fn ready(provider: LockProvider, database: &Database) -> LockProvider {
    database.create_collection("documents").await.unwrap();
    // A transaction that begins while the index is built is refused.
    until_indexed(&provider).await;
    provider
}

/// A hold of a provider behind a proxy, a transaction, and a fault for its end.
async fn with_fault(fault: Fault) -> (Proxied, LockGuard, ClientSession, Injected) {
    let it = Proxied::start(DEFAULT_EXPIRY).await;
    it.database.create_collection("documents").await.unwrap();
    let guard = it.provider.lock("done").once().acquire().await.unwrap();
    let session = transaction(&it.database).await;
    let fault = it.proxy.inject(fault);
    (it, guard, session, fault)
}

/// Asserts that the work was committed once, and that the lock has its mark.
async fn assert_done_once(it: &Proxied) {
    assert_eq!(committed_documents(it.db.database()).await, 1);
    let rival = it.rival().lock("done").once();
    let again = timeout(BEFORE_EXPIRY, rival.acquire()).await.unwrap();
    assert!(matches!(again, Err(LockError::Done { .. })), "{again:?}");
}

/// B3: the server executes the commit, but its reply never arrives. The commit is sent again, with or without a mark, and takes
/// effect once.
#[tokio::test]
async fn a_commit_without_a_reply_is_sent_again() {
    join_all([false, true].map(async |marks| {
        let fault = Fault::swallow_reply().command("commitTransaction");
        let (it, guard, mut session, fault) = with_fault(fault).await;
        let (context, begun) = (guard.context(), Instant::now());
        if marks {
            context.commit_done(&mut session).await.unwrap();
        } else {
            context.commit(&mut session).await.unwrap();
        }
        assert!(begun.elapsed() < AMPLE / 2, "{:?}", begun.elapsed());
        assert_eq!(fault.hits(), 1);
        assert_eq!(committed_documents(it.db.database()).await, 1);
        guard.release().await.expect("the hold has ended well");
        if marks {
            assert_done_once(&it).await;
        }
    }))
    .await;
}

/// The outcome of the commit is not known, because its caller has gone: what the server has decided stays. A dropped guard
/// does not undo it.
#[tokio::test]
async fn the_mark_of_a_commit_that_was_cut_off_stays() {
    let fault = Fault::swallow_reply().command("commitTransaction");
    let (it, guard, mut session, fault) = with_fault(fault).await;
    let context = guard.context();
    tokio::select! {
        ended = context.commit_done(&mut session) => panic!("the reply is lost: {ended:?}"),
        happened = fault.happened(AMPLE) => happened.unwrap(),
    }
    assert!(!guard.is_lost());
    drop(guard);
    // The release in the background finds no claim.
    timeout(AMPLE, it.provider.shutdown()).await.unwrap();
    assert_done_once(&it).await;
}

/// B3: half of the statements that guard commits, and half of the commits, are rejected. Each commit is made, and once.
#[tokio::test]
async fn guarded_commits_are_repeated_while_the_server_rejects_them() {
    const COMMITS: u64 = 20;
    let db = test_db().await;
    // The driver repeats nothing itself.
    let (database, commands) = recorded(&db, &["maxAdaptiveRetries=0"]).await;
    // A renewal between the beginning of a transaction and its statement is a conflict. None is due during this test.
    let provider = ready(with_expiry(&database, AMPLE * 60), &database).await;
    let guard = acquire_soon(&provider, "committed").await;
    let rejection = FailPoint::rejecting(&["update", "commitTransaction"]).part(0.5);
    let point = fail(&db, rejection).await;
    for _ in 0..COMMITS {
        let mut session = transaction(&database).await;
        let context = guard.context();
        let committed = timeout(AMPLE, context.commit(&mut session)).await;
        committed.expect("the commit ends").unwrap();
    }
    let failed = commands.failed();
    let is_commit = |failed: &String| failed.starts_with("commitTransaction");
    assert!(failed.iter().any(is_commit));
    point.clear().await.unwrap();
    assert_eq!(committed_documents(&database).await, COMMITS);
    guard.release().await.unwrap();
}

/// A commit that the server refuses is given up, and the transaction that is still open there blocks no lock.
#[tokio::test]
async fn a_commit_that_is_refused_leaves_no_transaction_open() {
    const BAD_VALUE: i32 = 2;
    let db = test_db().await;
    let database = db.database();
    let provider = ready(patient(database), database).await;
    let refusal = FailPoint::on(&["commitTransaction"]).error_code(BAD_VALUE);
    let point = fail(&db, refusal).await;
    let guard = acquire_soon(&provider, "kept").await;
    let mut session = transaction(database).await;
    let context = guard.context();
    let committed = timeout(AMPLE, context.commit(&mut session)).await.unwrap();
    let unknown = "UnknownTransactionCommitResult";
    let is_known = matches!(&committed, Err(LockError::Mongo(error)) if !error.contains_label(unknown));
    assert!(is_known, "{committed:?}");
    must(point.clear().await);
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

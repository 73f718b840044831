//! Guarded commits on connections that stop carrying messages without being closed.

use mongodb::bson::{Document, doc};
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongodb::{ClientSession, Collection, Database};
use mongolock::{LockContext, LockError, LockProvider};
use mongolock_tests::{AMPLE, Fault, TestDb, test_db};
use tokio::time::{Instant, timeout};

use crate::{acquire_soon, through_proxy, warm_up};

/// A transaction that has written one document, to be committed under guard.
async fn written(database: &Database) -> ClientSession {
    let mut session = database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let documents = documents(database);
    let insert = documents.insert_one(doc! { "_id": 1 });
    insert.session(&mut session).await.unwrap();
    session
}

fn documents(database: &Database) -> Collection<Document> {
    database.collection("documents")
}

async fn commit(context: &LockContext, session: &mut ClientSession) -> Result<(), LockError> {
    let committed = timeout(AMPLE, context.commit(session)).await;
    committed.expect("the commit ends")
}

/// B3: the server executes the commit, but its reply never arrives. The commit is sent again and takes effect once.
#[tokio::test]
async fn a_commit_without_a_reply_is_sent_again() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    database.create_collection("documents").await.unwrap();
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    let guard = acquire_soon(&provider, "committed").await;
    let mut session = written(&database).await;
    let swallowed = proxy.inject(Fault::swallow_reply().command("commitTransaction"));
    let begun = Instant::now();
    commit(&guard.context(), &mut session).await.unwrap();
    assert_eq!(swallowed.hits(), 1);
    assert!(begun.elapsed() < AMPLE / 2, "{:?}", begun.elapsed());
    let seen = documents(db.database()).count_documents(doc! {}).await.unwrap();
    assert_eq!(seen, 1);
    guard.release().await.unwrap();
}

/// The statement that guards the commit gets no reply: nothing is committed, and the transaction can be repeated.
#[tokio::test]
async fn a_guard_without_a_reply_commits_nothing() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    database.create_collection("documents").await.unwrap();
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    let guard = acquire_soon(&provider, "guarded").await;
    let mut session = written(&database).await;
    let swallowed = proxy.inject(Fault::swallow_request().command("update"));
    match commit(&guard.context(), &mut session).await {
        Err(LockError::Mongo(error)) => assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(swallowed.hits(), 1);
    let seen = documents(db.database()).count_documents(doc! {}).await.unwrap();
    assert_eq!(seen, 0);
    let mut session = written(&database).await;
    commit(&guard.context(), &mut session).await.unwrap();
    guard.release().await.unwrap();
}

/// The server has committed the work with its mark, and the reply never arrives. The commit is sent again, and the work is
/// done once.
#[tokio::test]
async fn a_commit_with_a_mark_is_sent_again() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    database.create_collection("documents").await.unwrap();
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    let guard = provider.lock("done").once().acquire().await.unwrap();
    let mut session = written(&database).await;
    let swallowed = proxy.inject(Fault::swallow_reply().command("commitTransaction"));
    let context = guard.context();
    let committed = timeout(AMPLE, context.commit_done(&mut session)).await;
    committed.expect("the commit ends").unwrap();
    assert_eq!(swallowed.hits(), 1);
    guard.done().await.unwrap();
    assert_done_once(&db).await;
}

/// The outcome of the commit is not known, because its caller has gone: what the server has decided stays. A dropped guard
/// does not take the mark back.
#[tokio::test]
async fn a_mark_of_a_commit_that_was_cut_off_stays() {
    let db = test_db().await;
    let (proxy, database) = through_proxy(&db).await;
    database.create_collection("documents").await.unwrap();
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    let guard = provider.lock("done").once().acquire().await.unwrap();
    let mut session = written(&database).await;
    let swallowed = proxy.inject(Fault::swallow_reply().command("commitTransaction"));
    let context = guard.context();
    {
        let mut committing = std::pin::pin!(context.commit_done(&mut session));
        tokio::select! {
            ended = &mut committing => panic!("the reply is lost: {ended:?}"),
            happened = swallowed.happened(AMPLE) => happened.unwrap(),
        }
    }
    drop(guard);
    // The release in the background finds no claim.
    timeout(AMPLE, provider.shutdown()).await.unwrap();
    assert_done_once(&db).await;
}

async fn assert_done_once(db: &TestDb) {
    let seen = documents(db.database()).count_documents(doc! {}).await.unwrap();
    assert_eq!(seen, 1);
    let other = LockProvider::new(db.database());
    let again = other.lock("done").once().acquire().await;
    assert!(matches!(again, Err(LockError::Done { .. })), "{again:?}");
}

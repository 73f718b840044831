//! Guarded commits on connections that stop carrying messages without being closed.

use mongodb::bson::{Document, doc};
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongodb::{ClientSession, Collection, Database};
use mongolock::{LockContext, LockError, LockProvider};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, Fault, TestDb, test_db};
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

/// How a commit ends the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Mark,
    Release,
}

impl End {
    const BOTH: [Self; 2] = [Self::Mark, Self::Release];

    async fn commit(self, context: &LockContext, session: &mut ClientSession) -> Result<(), LockError> {
        match self {
            Self::Mark => context.commit_done(session).await,
            Self::Release => context.commit_and_release(session).await,
        }
    }

    /// The work was committed once, and the lock has its mark, or is free.
    async fn assert_done_once(self, db: &TestDb) {
        let seen = documents(db.database()).count_documents(doc! {}).await.unwrap();
        assert_eq!(seen, 1);
        let other = LockProvider::new(db.database());
        let again = timeout(BEFORE_EXPIRY, other.lock("done").once().acquire())
            .await
            .unwrap();
        match self {
            Self::Mark => assert!(matches!(again, Err(LockError::Done { .. })), "{again:?}"),
            Self::Release => again.unwrap().release().await.unwrap(),
        }
    }
}

/// The server has committed the work with the end of the hold, and the reply never arrives. The commit is sent again, and the
/// work is done once.
#[tokio::test]
async fn a_commit_that_ends_the_hold_is_sent_again() {
    for end in End::BOTH {
        let db = test_db().await;
        let (proxy, database) = through_proxy(&db).await;
        database.create_collection("documents").await.unwrap();
        let provider = LockProvider::new(&database);
        warm_up(&provider).await;
        let guard = provider.lock("done").once().acquire().await.unwrap();
        let mut session = written(&database).await;
        let swallowed = proxy.inject(Fault::swallow_reply().command("commitTransaction"));
        let context = guard.context();
        let committed = timeout(AMPLE, end.commit(&context, &mut session)).await;
        committed.expect("the commit ends").unwrap();
        assert_eq!(swallowed.hits(), 1);
        guard.release().await.expect("the hold has ended well");
        end.assert_done_once(&db).await;
    }
}

/// The outcome of the commit is not known, because its caller has gone: what the server has decided stays. A dropped guard
/// takes nothing back.
#[tokio::test]
async fn the_end_of_a_hold_by_a_commit_that_was_cut_off_stays() {
    for end in End::BOTH {
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
            let mut committing = std::pin::pin!(end.commit(&context, &mut session));
            tokio::select! {
                ended = &mut committing => panic!("the reply is lost: {ended:?}"),
                happened = swallowed.happened(AMPLE) => happened.unwrap(),
            }
        }
        assert!(!guard.is_lost());
        drop(guard);
        // The release in the background finds no claim.
        timeout(AMPLE, provider.shutdown()).await.unwrap();
        end.assert_done_once(&db).await;
    }
}

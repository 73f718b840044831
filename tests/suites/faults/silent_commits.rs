//! Guarded commits on connections that stop carrying messages without being closed.

use mongodb::ClientSession;
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongolock::{LockError, LockGuard};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, Fault, Injected};
use tokio::time::{Instant, timeout};

use crate::{DEFAULT_EXPIRY, Proxied, committed_documents, transaction};

/// A hold whose commit meets a fault.
struct Scene {
    it: Proxied,
    guard: LockGuard,
    /// A transaction that has written one document, to be committed under guard.
    session: ClientSession,
    fault: Injected,
}

impl Scene {
    async fn start(fault: Fault) -> Self {
        let it = Proxied::start(DEFAULT_EXPIRY).await;
        it.database.create_collection("documents").await.unwrap();
        let guard = it.provider.lock("done").once().acquire().await.unwrap();
        let session = transaction(&it.database).await;
        let fault = it.proxy.inject(fault);
        Self {
            it,
            guard,
            session,
            fault,
        }
    }

    /// The outcome of a commit, which must end although the fault has hit it.
    async fn commit(&mut self) -> Result<(), LockError> {
        let context = self.guard.context();
        let committed = timeout(AMPLE, context.commit(&mut self.session)).await;
        assert_eq!(self.fault.hits(), 1);
        committed.expect("the commit ends")
    }

    async fn committed(&self) -> u64 {
        committed_documents(self.it.db.database()).await
    }
}

/// B3: the server executes the commit, but its reply never arrives. The commit is sent again and takes effect once.
#[tokio::test]
async fn a_commit_without_a_reply_is_sent_again() {
    let mut scene = Scene::start(Fault::swallow_reply().command("commitTransaction")).await;
    let begun = Instant::now();
    scene.commit().await.unwrap();
    assert!(begun.elapsed() < AMPLE / 2, "{:?}", begun.elapsed());
    assert_eq!(scene.committed().await, 1);
    scene.guard.release().await.unwrap();
}

/// The statement that guards the commit gets no reply: nothing is committed, and the transaction can be repeated.
#[tokio::test]
async fn a_guard_without_a_reply_commits_nothing() {
    let mut scene = Scene::start(Fault::swallow_request().command("update")).await;
    match scene.commit().await {
        Err(LockError::Mongo(error)) => assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.committed().await, 0);
    scene.session = transaction(&scene.it.database).await;
    scene.commit().await.unwrap();
    scene.guard.release().await.unwrap();
}

/// Asserts that the work was committed once, and that the lock has its mark.
async fn assert_done_once(it: &Proxied) {
    assert_eq!(committed_documents(it.db.database()).await, 1);
    let rival = it.rival().lock("done").once();
    let again = timeout(BEFORE_EXPIRY, rival.acquire()).await.unwrap();
    assert!(matches!(again, Err(LockError::Done { .. })), "{again:?}");
}

/// The server has committed the work with its mark, and the reply never arrives. The commit is sent again, and the work is done
/// once.
#[tokio::test]
async fn a_commit_with_a_mark_is_sent_again() {
    let mut scene = Scene::start(Fault::swallow_reply().command("commitTransaction")).await;
    let context = scene.guard.context();
    let committed = timeout(AMPLE, context.commit_done(&mut scene.session)).await;
    committed.expect("the commit ends").unwrap();
    assert_eq!(scene.fault.hits(), 1);
    scene.guard.release().await.expect("the hold has ended well");
    assert_done_once(&scene.it).await;
}

/// The outcome of the commit is not known, because its caller has gone: what the server has decided stays. A dropped guard
/// does not undo it.
#[tokio::test]
async fn the_mark_of_a_commit_that_was_cut_off_stays() {
    let mut scene = Scene::start(Fault::swallow_reply().command("commitTransaction")).await;
    let context = scene.guard.context();
    tokio::select! {
        ended = context.commit_done(&mut scene.session) => panic!("the reply is lost: {ended:?}"),
        happened = scene.fault.happened(AMPLE) => happened.unwrap(),
    }
    assert!(!scene.guard.is_lost());
    drop(scene.guard);
    // The release in the background finds no claim.
    timeout(AMPLE, scene.it.provider.shutdown()).await.unwrap();
    assert_done_once(&scene.it).await;
}

//! The end of a provider: which calls go on during a grace period, and what is left after it.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongolock::{LockContext, LockError, LockProvider, LossReason};
use mongolock_tests::{AMPLE, must, until};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_lost, assert_released};

conformance!(
    bodies_end_within_the_grace_period,
    work_beyond_the_grace_period_is_cut,
    a_shutdown_ends_a_grace_period,
    a_call_with_some_of_its_locks_is_refused_and_leaves_none,
);

/// A grace period that no test lets pass.
const GRACE: Duration = AMPLE;

/// Starts a body that holds the lock `outer` and runs `work` as soon as the shutdown with this grace period has begun.
/// Returns the outcome of the body when the shutdown has returned.
async fn shut_down_around<T: Send + 'static>(
    fixture: &Fixture,
    grace: Duration,
    work: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> Result<T, LockError> {
    let (begun, holds) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel();
    let body = fixture.provider.lock("outer").run(async |_| {
        begun.send(()).unwrap();
        may_go_on.await.unwrap();
        work.await
    });
    let body = tokio::spawn(body);
    holds.await.unwrap();
    let provider = fixture.provider.clone();
    let shutting_down = tokio::spawn(async move { provider.shutdown_after(grace).await });
    until_refused(&fixture.provider).await;
    go_on.send(()).unwrap();
    let shut_down = timeout(AMPLE, shutting_down).await;
    shut_down.expect("the shutdown ends").unwrap();
    body.await.unwrap()
}

fn is_shut_down<T>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::ShutDown { .. }))
}

async fn until_refused(provider: &LockProvider) {
    until("refusal of new acquires", async || {
        is_shut_down(&provider.lock("other").acquire().await)
    })
    .await;
}

/// A body still gets the locks that it needs: one that is free, one that a rival holds, and one by the guard of a task with its
/// context. Calls outside of a hold are refused while it runs, also those that wait or try once.
async fn bodies_end_within_the_grace_period(fixture: Fixture) {
    let rival = fixture.rival().lock("held").await.unwrap();
    let waiter = tokio::spawn(fixture.provider.lock("held").acquire());
    let provider = fixture.provider.clone();
    let ended = shut_down_around(&fixture, GRACE, async move {
        let outside = provider.lock("free");
        let outside = tokio::spawn(async move { outside.try_acquire().await });
        assert!(is_shut_down(&outside.await.unwrap()));
        assert!(is_shut_down(&waiter.await.unwrap()));
        let free = provider.lock("free");
        free.run(async |_| Ok::<_, LockError>(())).await?;
        let context = LockContext::current().unwrap();
        let waiting = tokio::spawn(context.clone().scope(provider.lock("held").acquire()));
        tokio::task::yield_now().await;
        rival.release().await?;
        waiting.await.unwrap()?.release().await?;
        assert!(provider.lock("tried").try_acquire().await?.is_some());
        context.ensure_held()
    });
    let begun = Instant::now();
    ended.await.unwrap();
    assert!(begun.elapsed() < GRACE, "it does not wait for the grace period");
    for name in ["outer", "free", "held", "tried"] {
        assert_released(&fixture.rival().lock(name)).await;
    }
    assert!(is_shut_down(&fixture.provider.lock("outer").acquire().await));
}

async fn work_beyond_the_grace_period_is_cut(fixture: Fixture) {
    let grace = Duration::from_millis(300);
    let _rival = fixture.rival().lock("held").await.unwrap();
    let guard = fixture.provider.lock("guarded").await.unwrap();
    let waiting = fixture.provider.lock("held");
    let begun = Instant::now();
    let ended = shut_down_around(&fixture, grace, async move { waiting.acquire().await.map(drop) });
    let error = ended.await.unwrap_err();
    assert!(begun.elapsed() >= grace, "{:?}", begun.elapsed());
    // The acquire in the body and the body itself end at the same time.
    match &error {
        LockError::Lost { reason, .. } => {
            assert_eq!(*reason, LossReason::ShutDown);
            let text = error.to_string();
            assert!(text.ends_with("its provider was shut down"), "{text}");
        }
        other => assert!(matches!(other, LockError::ShutDown { .. }), "{other}"),
    }
    assert!(guard.is_lost());
    assert_lost(guard.ensure_held(), LossReason::ShutDown);
    for name in ["outer", "guarded"] {
        let is_free = fixture.is_free(name).await;
        assert!(is_free, "it is released at the server when the shutdown returns");
    }
}

/// The call has `a` and waits for `b`.
async fn a_call_with_some_of_its_locks_is_refused_and_leaves_none(fixture: Fixture) {
    let rival = fixture.rival().lock("b").await.unwrap();
    let waiter = tokio::spawn(fixture.provider.lock_all(["a", "b"]).acquire());
    let admin = fixture.rival().admin();
    until("the first lock", async || admin.get("a").await.unwrap().is_some()).await;
    let shut_down = timeout(AMPLE, fixture.provider.shutdown()).await;
    shut_down.expect("the shutdown ends");
    assert!(is_shut_down(&waiter.await.unwrap()));
    rival.release().await.unwrap();
    for name in ["a", "b"] {
        assert!(fixture.is_free(name).await, "{name}");
    }
}

async fn a_shutdown_ends_a_grace_period(fixture: Fixture) {
    let guard = fixture.provider.lock("held").await.unwrap();
    let graceful = fixture.provider.shutdown_after(GRACE);
    let at_once = async {
        until_refused(&fixture.provider).await;
        fixture.provider.shutdown().await;
    };
    let both = async { tokio::join!(graceful, at_once) };
    timeout(GRACE / 2, both).await.expect("the grace period ends");
    assert!(guard.is_lost());
}

/// The change stream and the sessions of a provider are closed at the server when its shutdown has returned, and the
/// client of a `connect` provider is shut down with the last provider that uses it.
#[tokio::test]
async fn a_shutdown_leaves_nothing_open_at_the_server() {
    let fixture = Fixture::mongodb().await;
    let uri = format!("{}&appName={}_own", fixture.uri(), fixture.db().name());
    let provider = LockProvider::connect(&uri).await.unwrap();
    let second = provider.to_builder().owner("second").build().unwrap();
    let guard = second.lock("held").await.unwrap();
    let waiter = tokio::spawn(provider.lock("held").acquire_timeout(None).acquire());
    let open_streams = async || {
        count(&fixture, doc! { "type": "idleCursor" }).await
            + count(&fixture, doc! { "command.getMore": { "$exists": true } }).await
    };
    until("change stream", async || open_streams().await > 0).await;

    provider.shutdown().await;
    assert!(is_shut_down(&waiter.await.unwrap()));
    until("end of the stream", async || open_streams().await == 0).await;
    guard.release().await.expect("the other provider's client works");
    acquire_and_release(&second.lock("again")).await;
    second.shutdown().await;
    until("end of all connections", async || {
        count(&fixture, doc! {}).await == 0
    })
    .await;
    let read = second.admin().get("held").await;
    read.expect_err("its client is shut down");
}

/// The number of operations and connections of a test's own client that match.
async fn count(fixture: &Fixture, matching: Document) -> usize {
    // The Stable API has no `$currentOp`.
    let database = must(fixture.db().without_stable_api().await);
    let admin = database.client().database("admin");
    let own = doc! { "$match": { "appName": format!("{}_own", fixture.db().name()) } };
    let all = doc! { "$currentOp": { "idleConnections": true, "idleCursors": true } };
    let found = must(admin.aggregate([all, own, doc! { "$match": matching }]).await);
    must(found.try_collect::<Vec<Document>>().await).len()
}

//! `#[distributed_lock]` releases the lock however the function ends.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};
use mongolock_tests::AMPLE;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::fixture::{AppError, Fixture, assert_released};

/// How the body of `work` ends.
#[derive(Clone)]
enum Way {
    Tail,
    Return,
    Question,
    Error,
    Panic,
    /// Notify the test that the body runs, and never end.
    Stay(Arc<Notify>),
}

#[distributed_lock(name = "work:<id>", expiry = "30s")]
async fn work(id: u32, way: Way) -> Result<i64, AppError> {
    let token = LockContext::current()
        .expect("the body runs under the lock")
        .fencing_token();
    match way {
        Way::Tail => {}
        Way::Return => return Ok(token.get()),
        Way::Question => Err(AppError::Body)?,
        Way::Error => return Err(AppError::Body),
        Way::Panic => panic!("panic of the test"),
        Way::Stay(inside) => {
            inside.notify_one();
            std::future::pending::<()>().await;
        }
    }
    Ok(token.get())
}

/// Asserts that the call had released the lock at the server when it returned.
async fn assert_released_now(fixture: &Fixture, name: &str) {
    assert_eq!(fixture.lock_id(name).await, "", "the call has released the lock");
}

/// S0.4, S0.6, S4.6: the name comes from the argument.
#[tokio::test]
async fn return_and_error_release() {
    let fixture = Fixture::mongodb().await;
    for way in [Way::Tail, Way::Return] {
        let token = fixture.provider.scope(work(1, way)).await.unwrap();
        let document = fixture.document("work:1").await.unwrap();
        assert_eq!(document.get_i64("fencingToken").unwrap(), token);
        assert_released_now(&fixture, "work:1").await;
    }
    for way in [Way::Question, Way::Error] {
        let failed = fixture.provider.scope(work(1, way)).await;
        assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
        assert_released_now(&fixture, "work:1").await;
    }
    assert!(LockContext::current().is_none());
}

/// S4.6
#[tokio::test]
async fn a_panic_continues_after_the_release() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.provider.clone();
    let call = tokio::spawn(async move { provider.scope(work(2, Way::Panic)).await });
    let panicked = call.await.unwrap_err().into_panic();
    assert_eq!(panicked.downcast_ref(), Some(&"panic of the test"));
    assert_released_now(&fixture, "work:2").await;
}

/// A future that is dropped, and a task that is aborted, in the middle of the body.
#[tokio::test]
async fn a_cancelled_call_releases() {
    let fixture = Fixture::mongodb().await;
    for (id, is_aborted) in [(3, false), (4, true)] {
        let inside = Arc::new(Notify::new());
        let (provider, way) = (fixture.provider.clone(), Way::Stay(inside.clone()));
        let mut call = Box::pin(async move { provider.scope(work(id, way)).await });
        if is_aborted {
            let task = tokio::spawn(call);
            inside.notified().await;
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        } else {
            tokio::select! {
                _ = &mut call => unreachable!("the body never ends"),
                () = inside.notified() => drop(call),
            }
        }
        assert_released(&fixture.rival().lock(format!("work:{id}"))).await;
    }
}

#[tokio::test]
async fn a_call_that_is_never_polled_acquires_nothing() {
    let fixture = Fixture::mongodb().await;
    drop(fixture.provider.scope(work(5, Way::Tail)));
    assert!(fixture.document("work:5").await.is_none());
}

/// B16: the body never runs without the lock.
#[tokio::test]
async fn a_busy_lock_keeps_the_body_from_running() {
    #[distributed_lock(name = "busy", acquire_timeout = "2s")]
    async fn never() -> Result<(), LockError> {
        unreachable!("another holder has the lock")
    }

    let fixture = Fixture::mongodb().await;
    let _held = fixture.rival().lock("busy").await.unwrap();
    let refused = fixture.provider.scope(never()).await;
    assert!(matches!(refused, Err(LockError::Timeout { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_call_without_a_provider_is_an_error() {
    let refused = work(6, Way::Tail).await;
    assert!(matches!(refused, Err(AppError::Lock(LockError::NoProvider))));
}

struct Reports {
    tenant: String,
    provider: LockProvider,
}

impl Reports {
    #[distributed_lock(name = "<self.tenant>:<id>", provider = self.provider)]
    async fn rebuild(&self, id: u32) -> Result<String, LockError> {
        let lock = LockContext::current().expect("the body runs under the lock");
        Ok(format!("{}/{id}", lock.name()))
    }
}

#[tokio::test]
async fn a_method_takes_its_name_and_its_provider_from_self() {
    let fixture = Fixture::mongodb().await;
    let reports = Reports {
        tenant: "acme".into(),
        provider: fixture.provider.clone(),
    };
    assert_eq!(reports.rebuild(7).await.unwrap(), "acme:7/7");
    assert_released(&fixture.rival().lock("acme:7")).await;
}

/// S0.1: a body that reads before another body has written would lose an update.
#[tokio::test]
async fn annotated_calls_lose_no_update() {
    static COUNT: std::sync::Mutex<u32> = std::sync::Mutex::new(0);

    #[distributed_lock(name = "counter")]
    async fn increment() -> Result<(), LockError> {
        let read = *COUNT.lock().unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        *COUNT.lock().unwrap() = read + 1;
        Ok(())
    }

    let fixture = Fixture::mongodb().await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..24 {
        let provider = [fixture.provider.clone(), fixture.rival()][index % 2].clone();
        tasks.spawn(async move { provider.scope(increment()).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!(*COUNT.lock().unwrap(), 24);
}

/// S4.1: each type of data has a lock of its own.
#[tokio::test]
async fn calls_of_one_type_are_serialised_and_types_run_in_parallel() {
    #[distributed_lock(name = "import:<kind>")]
    async fn import(kind: &'static str, met: Arc<tokio::sync::Barrier>) -> Result<(), LockError> {
        met.wait().await;
        Ok(())
    }

    let fixture = Fixture::mongodb().await;
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let (orders, invoices) = (import("orders", both.clone()), import("invoices", both.clone()));
    let side_by_side = fixture.provider.scope(async { tokio::join!(orders, invoices) });
    let (orders, invoices) = timeout(AMPLE, side_by_side)
        .await
        .expect("calls of both types are inside at the same time");
    orders.unwrap();
    invoices.unwrap();
    let (one, other) = (import("orders", both.clone()), import("orders", both));
    let serialised = fixture.provider.scope(async { tokio::join!(one, other) });
    assert!(
        timeout(Duration::from_millis(500), serialised).await.is_err(),
        "two calls of one type are never inside at the same time"
    );
}

#[distributed_lock(name = "periods:<name>", once_per = "366d", provider = locks)]
async fn once_per_period(locks: &LockProvider, name: &str, fails: bool) -> Result<Option<u32>, AppError> {
    if fails { Err(AppError::Body) } else { Ok(Some(7)) }
}

#[distributed_lock(name = "ticks:<tick>", once = true, provider = locks)]
async fn once_per_tick(locks: &LockProvider, tick: u32) -> Result<u32, AppError> {
    Ok(tick)
}

#[distributed_lock(name = "ticks:<tick>", once = true, on_busy = "skip", provider = locks)]
async fn skipped_tick(locks: &LockProvider, tick: u32) -> Result<(), AppError> {
    panic!("tick {tick} runs")
}

/// After a success the body does not run again: the call returns the skipped value, or an error if its type has none.
#[tokio::test]
async fn work_that_is_done_is_skipped() {
    let fixture = Fixture::mongodb().await;
    let (ours, theirs) = (fixture.provider.clone(), fixture.rival());
    let failed = once_per_period(&ours, "a", true).await;
    assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
    assert_eq!(once_per_period(&theirs, "a", false).await.unwrap(), Some(7));
    for provider in [&ours, &theirs] {
        assert_eq!(once_per_period(provider, "a", false).await.unwrap(), None);
    }
    assert_eq!(once_per_period(&ours, "b", false).await.unwrap(), Some(7));

    assert_eq!(once_per_tick(&ours, 1).await.unwrap(), 1);
    let done = once_per_tick(&theirs, 1).await;
    assert!(matches!(done, Err(AppError::Lock(LockError::Done { .. }))));
    skipped_tick(&theirs, 1).await.unwrap();
    let running = theirs.lock("ticks:2").once().acquire().await.unwrap();
    skipped_tick(&ours, 2).await.unwrap();
    running.done().await.unwrap();
    skipped_tick(&ours, 2).await.unwrap();
}

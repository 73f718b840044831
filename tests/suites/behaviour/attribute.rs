//! What `#[distributed_lock]` makes of its arguments at run time, on both stores.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, LossReason, distributed_lock};
use tokio::time::{sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{AppError, Fixture, assert_lost, in_time, refused_option, renewing};

conformance!(
    a_panic_continues_after_the_release,
    calls_of_one_type_are_serialised_and_types_run_in_parallel,
    work_that_is_done_is_skipped,
    a_skipped_call_returns_the_skipped_value_of_its_type,
    a_loss_ends_the_body_as_the_attribute_says,
);

/// S4.6: the lock is released when the call returns or its panic continues.
async fn a_panic_continues_after_the_release(fixture: Fixture) {
    #[distributed_lock(name = "work:<id>")]
    async fn work(id: u32, fails: bool) -> Result<i64, AppError> {
        assert!(id != 2, "panic of the test");
        if fails {
            return Err(AppError::Body);
        }
        let context = LockContext::current().expect("within a hold");
        Ok(context.fencing_token().get())
    }

    let provider = fixture.provider.clone();
    let token = provider.scope(work(1, false)).await.unwrap();
    assert_eq!(fixture.info("work:1").await.fencing_token.get(), token);
    assert!(fixture.is_free("work:1").await, "the call has released the lock");
    let failed = provider.scope(work(1, true)).await;
    assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
    assert!(fixture.is_free("work:1").await, "the call has released the lock");
    assert!(LockContext::current().is_none());
    drop(provider.scope(work(1, false)));
    let panicked = tokio::spawn(async move { provider.scope(work(2, false)).await }).await;
    let panic = panicked.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"panic of the test"));
    assert!(fixture.is_free("work:2").await, "the call has released the lock");

    let refused = work(1, false).await;
    assert!(matches!(refused, Err(AppError::Lock(LockError::NoProvider))));
}

/// S4.1: each type of data has a lock of its own.
async fn calls_of_one_type_are_serialised_and_types_run_in_parallel(fixture: Fixture) {
    #[distributed_lock(name = "import:<kind>")]
    async fn import(kind: &'static str, met: Arc<tokio::sync::Barrier>) -> Result<(), LockError> {
        met.wait().await;
        Ok(())
    }

    let both = Arc::new(tokio::sync::Barrier::new(2));
    let import = |kind| import(kind, Arc::clone(&both));
    let side_by_side = async { tokio::join!(import("orders"), import("invoices")) };
    let (orders, invoices) = in_time(fixture.provider.scope(side_by_side)).await;
    orders.and(invoices).unwrap();
    let serialised = async { tokio::join!(import("orders"), import("orders")) };
    let serialised = timeout(Duration::from_millis(500), fixture.provider.scope(serialised)).await;
    // Two calls of one type are never inside at the same time.
    assert!(serialised.is_err());
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
async fn work_that_is_done_is_skipped(fixture: Fixture) {
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

#[distributed_lock(name = "tick", on_busy = "skip")]
async fn unit() -> Result<(), LockError> {
    unreachable!("the lock is busy")
}

#[distributed_lock(name = "tick", on_busy = "skip")]
async fn option() -> Result<Option<u8>, LockError> {
    Ok(Some(1))
}

/// A skip with a timeout waits first. A free lock is not skipped.
async fn a_skipped_call_returns_the_skipped_value_of_its_type(fixture: Fixture) {
    #[distributed_lock(name = "tick", on_busy = "skip", acquire_timeout = "30s")]
    async fn patient() -> Result<Option<u8>, LockError> {
        Ok(Some(2))
    }

    let provider = &fixture.provider;
    let busy = fixture.rival().lock("tick").await.unwrap();
    provider.scope(unit()).await.unwrap();
    assert_eq!(provider.scope(option()).await.unwrap(), None);
    let released = async {
        sleep(Duration::from_millis(50)).await;
        busy.release().await
    };
    let (ticked, released) = tokio::join!(provider.scope(patient()), released);
    released.unwrap();
    assert_eq!(ticked.unwrap(), Some(2));
    assert_eq!(provider.scope(option()).await.unwrap(), Some(1));
}

/// The lock is lost after 200 ms, as if no renewal had been confirmed. The loss cancels the body, or the body continues and returns
/// its own result. B10: if the body does not notice the loss, the caller gets the loss if it succeeds, and its error otherwise.
async fn a_loss_ends_the_body_as_the_attribute_says(fixture: Fixture) {
    #[distributed_lock(name = "cancelled", expiry = "200ms", max_hold = "0s")]
    async fn cancelled() -> Result<(), LockError> {
        std::future::pending().await
    }

    #[distributed_lock(name = "continues", expiry = "200ms", max_hold = "0s", on_lost = "continue")]
    async fn continuing() -> Result<bool, LockError> {
        let context = LockContext::current().expect("within a hold");
        context.lost().await;
        Ok(context.is_lost())
    }

    #[distributed_lock(name = "blocked", expiry = "200ms", max_hold = "0s")]
    async fn blocked(result: Result<(), AppError>) -> Result<(), AppError> {
        std::thread::sleep(Duration::from_millis(300));
        result
    }

    let provider = &fixture.provider;
    let (ended, continued) = in_time(provider.scope(async { tokio::join!(cancelled(), continuing()) })).await;
    assert_lost(ended, LossReason::Expired);
    assert!(continued.unwrap());
    let succeeded = provider.scope(blocked(Ok(()))).await;
    let is_lost = matches!(succeeded, Err(AppError::Lock(LockError::Lost { .. })));
    assert!(is_lost, "{succeeded:?}");
    let failed = provider.scope(blocked(Err(AppError::Body))).await;
    assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
    // An expiry that does not fit the provider's renewal interval is refused.
    let seldom = renewing(provider, Duration::from_secs(5));
    assert_eq!(refused_option(seldom.scope(cancelled()).await), "renew_interval");
}

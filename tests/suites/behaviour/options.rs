//! The attribute's `on_busy`, `on_lost` and `min_hold`, and its checks of names and options at run time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongolock::{LockContext, LockError, LossReason, Skipped, distributed_lock};
use mongolock_tests::AMPLE;
use tokio::time::{sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{AppError, Fixture, assert_lost, refused_option, renewing};

conformance!(
    a_skipped_call_returns_the_skipped_value_of_its_type,
    a_skip_with_a_timeout_waits_first,
    a_free_lock_is_neither_skipped_nor_failed,
    a_lost_lock_cancels_the_body,
    a_body_that_continues_returns_its_own_result,
    a_body_that_does_not_notice_the_loss_returns_lost_or_its_error,
    a_minimum_hold_of_the_attribute_overrides_the_providers,
    options_that_do_not_fit_the_providers_are_refused,
);

#[derive(Debug, PartialEq)]
enum Tick {
    Done,
    Left,
}

impl Skipped for Tick {
    fn skipped() -> Self {
        Self::Left
    }
}

#[distributed_lock(name = "tick", on_busy = "skip")]
async fn unit() -> Result<(), LockError> {
    unreachable!("the lock is busy")
}

#[distributed_lock(name = "tick", on_busy = "skip")]
async fn option() -> Result<Option<u8>, LockError> {
    Ok(Some(1))
}

#[distributed_lock(name = "tick", on_busy = "skip")]
async fn own() -> Result<Tick, LockError> {
    Ok(Tick::Done)
}

#[distributed_lock(name = "tick", on_busy = "skip", acquire_timeout = "30s")]
async fn patient() -> Result<Tick, LockError> {
    Ok(Tick::Done)
}

#[distributed_lock(name = "tick", on_busy = "fail")]
async fn failing() -> Result<Tick, LockError> {
    Ok(Tick::Done)
}

async fn a_skipped_call_returns_the_skipped_value_of_its_type(fixture: Fixture) {
    let _busy = fixture.rival().lock("tick").await.unwrap();
    fixture.provider.scope(unit()).await.unwrap();
    assert_eq!(fixture.provider.scope(option()).await.unwrap(), None);
    assert_eq!(fixture.provider.scope(own()).await.unwrap(), Tick::Left);
}

async fn a_skip_with_a_timeout_waits_first(fixture: Fixture) {
    let busy = fixture.rival().lock("tick").await.unwrap();
    let (ticked, released) = tokio::join!(fixture.provider.scope(patient()), async {
        sleep(Duration::from_millis(50)).await;
        busy.release().await
    });
    released.unwrap();
    assert_eq!(ticked.unwrap(), Tick::Done);
}

async fn a_free_lock_is_neither_skipped_nor_failed(fixture: Fixture) {
    assert_eq!(fixture.provider.scope(option()).await.unwrap(), Some(1));
    assert_eq!(fixture.provider.scope(own()).await.unwrap(), Tick::Done);
    assert_eq!(fixture.provider.scope(failing()).await.unwrap(), Tick::Done);
}

async fn a_lost_lock_cancels_the_body(fixture: Fixture) {
    // It is lost after 200 ms, as if no renewal had been confirmed.
    #[distributed_lock(name = "short", expiry = "200ms", max_hold = "0s")]
    async fn short(has_begun: &AtomicBool) -> Result<(), LockError> {
        has_begun.store(true, Ordering::SeqCst);
        std::future::pending().await
    }

    let has_begun = AtomicBool::new(false);
    let ended = timeout(AMPLE, fixture.provider.scope(short(&has_begun))).await;
    assert_lost(ended.expect("the body is cancelled"), LossReason::Expired);
    assert!(has_begun.into_inner());
}

async fn a_body_that_continues_returns_its_own_result(fixture: Fixture) {
    #[distributed_lock(name = "short", expiry = "200ms", max_hold = "0s", on_lost = "continue")]
    async fn continuing() -> Result<bool, LockError> {
        let context = LockContext::current().expect("within a hold");
        context.lost().await;
        Ok(context.is_lost())
    }
    let continued = timeout(AMPLE, fixture.provider.scope(continuing())).await;
    assert!(continued.expect("the lease ends").unwrap());
}

/// B10: the body blocks its thread beyond the lease. The caller gets the loss if the body succeeds, and its error otherwise.
async fn a_body_that_does_not_notice_the_loss_returns_lost_or_its_error(fixture: Fixture) {
    #[distributed_lock(name = "blocked", expiry = "200ms", max_hold = "0s")]
    async fn blocked(result: Result<(), AppError>) -> Result<(), AppError> {
        std::thread::sleep(Duration::from_millis(300));
        result
    }
    let succeeded = fixture.provider.scope(blocked(Ok(()))).await;
    assert!(
        matches!(succeeded, Err(AppError::Lock(LockError::Lost { .. }))),
        "{succeeded:?}"
    );
    let failed = fixture.provider.scope(blocked(Err(AppError::Body))).await;
    assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
}

async fn a_minimum_hold_of_the_attribute_overrides_the_providers(fixture: Fixture) {
    #[distributed_lock(name = "default")]
    async fn default() -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(name = "none", min_hold = "0s")]
    async fn none() -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(name = "longer", min_hold = "1h")]
    async fn longer() -> Result<(), LockError> {
        Ok(())
    }

    let ten_minutes = AMPLE * 10;
    let provider = fixture.with(|options| options.min_hold(ten_minutes));
    provider.scope(default()).await.unwrap();
    provider.scope(none()).await.unwrap();
    provider.scope(longer()).await.unwrap();
    let remaining = async |name: &str| fixture.info(name).await.remaining;
    assert!((AMPLE * 9..=ten_minutes).contains(&remaining("default").await));
    assert_eq!(remaining("none").await, Duration::ZERO);
    assert!(remaining("longer").await > ten_minutes);
}

async fn options_that_do_not_fit_the_providers_are_refused(fixture: Fixture) {
    #[distributed_lock(name = "n", expiry = "5s")]
    async fn short() -> Result<(), LockError> {
        Ok(())
    }

    let seldom = renewing(&fixture.provider, Duration::from_secs(5));
    assert_eq!(refused_option(seldom.scope(short()).await), "renew_interval");
    let often = renewing(&fixture.provider, Duration::from_secs(4));
    often.scope(short()).await.unwrap();
}

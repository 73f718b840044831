//! The attribute's `on_busy`, `on_lost` and `min_hold`, and its checks of names and options at run time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, Skipped, distributed_lock};
use mongolock_tests::AMPLE;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{AppError, Fixture, renewing};

conformance!(
    a_skipped_call_returns_the_skipped_value_of_its_type,
    a_skip_with_a_timeout_waits_first,
    a_busy_call_fails_at_once,
    a_free_lock_is_neither_skipped_nor_failed,
    a_lost_lock_cancels_the_body,
    a_body_that_continues_returns_its_own_result,
    a_body_that_does_not_notice_the_loss_returns_lost,
    a_failed_body_keeps_its_error_when_the_lock_is_lost,
    a_minimum_hold_outlives_every_exit,
    a_minimum_hold_of_the_attribute_overrides_the_providers,
    names_are_checked_when_they_are_rendered,
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

async fn a_busy_call_fails_at_once(fixture: Fixture) {
    let _busy = fixture.rival().lock("tick").await.unwrap();
    let error = fixture.provider.scope(failing()).await.unwrap_err();
    assert!(matches!(&error, LockError::Busy { name, .. } if name == "tick"));
    assert!(error.to_string().contains("`tick`"), "{error}");
}

async fn a_free_lock_is_neither_skipped_nor_failed(fixture: Fixture) {
    assert_eq!(fixture.provider.scope(option()).await.unwrap(), Some(1));
    assert_eq!(fixture.provider.scope(own()).await.unwrap(), Tick::Done);
    assert_eq!(fixture.provider.scope(failing()).await.unwrap(), Tick::Done);
}

/// A lock that is lost after 200 ms, as if no renewal had been confirmed.
#[distributed_lock(name = "short", expiry = "200ms", max_hold = "0s")]
async fn short(steps: &AtomicUsize, stay: Duration) -> Result<(), AppError> {
    steps.fetch_add(1, Ordering::SeqCst);
    sleep(stay).await;
    steps.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

async fn a_lost_lock_cancels_the_body(fixture: Fixture) {
    let steps = AtomicUsize::new(0);
    let ended = timeout(AMPLE, fixture.provider.scope(short(&steps, AMPLE * 2)))
        .await
        .expect("the body is cancelled");
    assert!(
        matches!(ended, Err(AppError::Lock(LockError::Lost { .. }))),
        "{ended:?}"
    );
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}

async fn a_body_that_continues_returns_its_own_result(fixture: Fixture) {
    #[distributed_lock(name = "short", expiry = "200ms", max_hold = "0s", on_lost = "continue")]
    async fn continuing() -> Result<bool, LockError> {
        let context = LockContext::current().expect("within a hold");
        context.lost().await;
        Ok(context.is_lost())
    }
    assert!(
        timeout(AMPLE, fixture.provider.scope(continuing()))
            .await
            .expect("the lease ends")
            .unwrap()
    );
}

/// The body blocks its thread beyond the lease and returns `Ok`: the caller still gets the loss as an error.
async fn a_body_that_does_not_notice_the_loss_returns_lost(fixture: Fixture) {
    #[distributed_lock(name = "blocked", expiry = "200ms", max_hold = "0s")]
    async fn blocked() -> Result<(), AppError> {
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }
    let ended = fixture.provider.scope(blocked()).await;
    assert!(
        matches!(ended, Err(AppError::Lock(LockError::Lost { .. }))),
        "{ended:?}"
    );
}

/// B10
async fn a_failed_body_keeps_its_error_when_the_lock_is_lost(fixture: Fixture) {
    #[distributed_lock(name = "blocked", expiry = "200ms", max_hold = "0s")]
    async fn blocked() -> Result<(), AppError> {
        std::thread::sleep(Duration::from_millis(300));
        Err(AppError::Body)
    }
    assert!(matches!(
        fixture.provider.scope(blocked()).await,
        Err(AppError::Body)
    ));
}

async fn a_minimum_hold_outlives_every_exit(fixture: Fixture) {
    const MIN_HOLD: Duration = Duration::from_secs(2);

    #[distributed_lock(name = "once:<way>", min_hold = "2s")]
    async fn once(way: u8, begun: oneshot::Sender<()>) -> Result<(), AppError> {
        begun.send(()).unwrap();
        match way {
            0 => Ok(()),
            1 => Err(AppError::Body),
            2 => panic!("panic of the test"),
            _ => std::future::pending().await,
        }
    }

    async fn exit(way: u8, provider: LockProvider, rival: LockProvider) {
        let called = Instant::now();
        let (begins, begun) = oneshot::channel();
        let call = tokio::spawn(async move { provider.scope(once(way, begins)).await });
        begun.await.unwrap();
        if way == 3 {
            call.abort();
        }
        let _ = call.await;
        assert!(
            called.elapsed() < MIN_HOLD,
            "exit {way}: the call returns at once"
        );
        let next = rival.lock(format!("once:{way}")).acquire().await.unwrap();
        assert!(called.elapsed() >= MIN_HOLD, "exit {way}");
        next.release().await.unwrap();
    }

    let mut exits = JoinSet::new();
    for way in 0..4 {
        exits.spawn(exit(way, fixture.provider.clone(), fixture.rival()));
    }
    exits.join_all().await;
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
    let provider = fixture
        .provider
        .to_builder()
        .min_hold(ten_minutes)
        .build()
        .unwrap();
    provider.scope(default()).await.unwrap();
    provider.scope(none()).await.unwrap();
    provider.scope(longer()).await.unwrap();
    let remaining = async |name: &str| {
        let info = fixture.provider.admin().get(name).await.unwrap();
        info.expect("the call has locked it").remaining
    };
    assert!((AMPLE * 9..=ten_minutes).contains(&remaining("default").await));
    assert_eq!(remaining("none").await, Duration::ZERO);
    assert!(remaining("longer").await > ten_minutes);
}

async fn names_are_checked_when_they_are_rendered(fixture: Fixture) {
    #[distributed_lock(name = "user:<name>")]
    async fn greet(name: &str) -> Result<String, LockError> {
        Ok(LockContext::current().expect("within a hold").name().to_owned())
    }

    let greeted = async |name: &str| fixture.provider.scope(greet(name)).await;
    assert_eq!(greeted("Zoë <1>").await.unwrap(), "user:Zoë <1>");
    let longest = "n".repeat(1024 - "user:".len());
    assert!(greeted(&longest).await.is_ok());
    for bad in ["", "a\tb", "\u{85}", &format!("{longest}n")] {
        let error = greeted(bad).await.unwrap_err();
        assert!(matches!(error, LockError::InvalidName { .. }), "{error}");
    }
    let error = greeted("").await.unwrap_err().to_string();
    assert!(
        error.contains("<name>"),
        "the error names the placeholder: {error}"
    );
}

async fn options_that_do_not_fit_the_providers_are_refused(fixture: Fixture) {
    #[distributed_lock(name = "n", expiry = "5s")]
    async fn short() -> Result<(), LockError> {
        Ok(())
    }

    let provider = renewing(&fixture.provider, Duration::from_secs(5));
    let error = provider.scope(short()).await.unwrap_err();
    assert!(
        matches!(
            &error,
            LockError::InvalidOption {
                option: "renew_interval",
                ..
            }
        ),
        "{error}"
    );
    let provider = renewing(&fixture.provider, Duration::from_secs(4));
    provider.scope(short()).await.unwrap();
}

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
    let document = fixture.document(name).await.unwrap();
    assert_eq!(
        document.get_str("lockId").unwrap(),
        "",
        "the lock is released when the call returns"
    );
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
        assert!(matches!(
            fixture.provider.scope(work(1, way)).await,
            Err(AppError::Body)
        ));
        assert_eq!(
            fixture
                .document("work:1")
                .await
                .unwrap()
                .get_str("lockId")
                .unwrap(),
            ""
        );
    }
    assert!(LockContext::current().is_none());
}

/// S4.6
#[tokio::test]
async fn a_panic_continues_after_the_release() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.provider.clone();
    let panicked = tokio::spawn(async move { provider.scope(work(2, Way::Panic)).await })
        .await
        .unwrap_err();
    assert_eq!(panicked.into_panic().downcast_ref(), Some(&"panic of the test"));
    assert_eq!(
        fixture
            .document("work:2")
            .await
            .unwrap()
            .get_str("lockId")
            .unwrap(),
        ""
    );
}

#[tokio::test]
async fn a_dropped_future_releases() {
    let fixture = Fixture::mongodb().await;
    let inside = Arc::new(Notify::new());
    let call = fixture.provider.scope(work(3, Way::Stay(inside.clone())));
    tokio::select! {
        _ = call => unreachable!("the body never ends"),
        () = inside.notified() => {}
    }
    assert_released(&fixture.rival().lock("work:3")).await;
}

#[tokio::test]
async fn an_aborted_task_releases() {
    let fixture = Fixture::mongodb().await;
    let inside = Arc::new(Notify::new());
    let (provider, way) = (fixture.provider.clone(), Way::Stay(inside.clone()));
    let task = tokio::spawn(async move { provider.scope(work(4, way)).await });
    inside.notified().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_released(&fixture.rival().lock("work:4")).await;
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
    #[distributed_lock(name = "busy", acquire_timeout = "100ms")]
    async fn never() -> Result<(), LockError> {
        unreachable!("another holder has the lock")
    }

    let fixture = Fixture::mongodb().await;
    let _held = fixture.rival().lock("busy").await.unwrap();
    assert!(matches!(
        fixture.provider.scope(never()).await,
        Err(LockError::Timeout { .. })
    ));
}

#[tokio::test]
async fn a_call_without_a_provider_is_an_error() {
    assert!(matches!(
        work(6, Way::Tail).await,
        Err(AppError::Lock(LockError::NoProvider))
    ));
}

struct Reports {
    tenant: String,
    provider: LockProvider,
}

impl Reports {
    #[distributed_lock(name = "<self.tenant>:<id>", provider = self.provider)]
    async fn rebuild(&self, id: u32) -> Result<String, LockError> {
        Ok(LockContext::current()
            .expect("the body runs under the lock")
            .name()
            .to_owned()
            + &format!("/{id}"))
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
        let provider = if index % 2 == 0 {
            fixture.provider.clone()
        } else {
            fixture.rival()
        };
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
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Orders,
        Invoices,
    }

    impl std::fmt::Display for Kind {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(match self {
                Self::Orders => "orders",
                Self::Invoices => "invoices",
            })
        }
    }

    #[distributed_lock(name = "import:<kind>")]
    async fn import(kind: Kind, met: Arc<tokio::sync::Barrier>) -> Result<(), LockError> {
        met.wait().await;
        Ok(())
    }

    let fixture = Fixture::mongodb().await;
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let (orders, invoices) = (
        import(Kind::Orders, both.clone()),
        import(Kind::Invoices, both.clone()),
    );
    let side_by_side = fixture.provider.scope(async { tokio::join!(orders, invoices) });
    let (orders, invoices) = timeout(AMPLE, side_by_side)
        .await
        .expect("calls of both types are inside at the same time");
    orders.unwrap();
    invoices.unwrap();
    let (one, other) = (import(Kind::Orders, both.clone()), import(Kind::Orders, both));
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
    assert!(
        matches!(done, Err(AppError::Lock(LockError::Done { .. }))),
        "{done:?}"
    );
    skipped_tick(&theirs, 1).await.unwrap();
    let running = theirs.lock("ticks:2").once().acquire().await.unwrap();
    skipped_tick(&ours, 2).await.unwrap();
    running.done().await.unwrap();
    skipped_tick(&ours, 2).await.unwrap();
}

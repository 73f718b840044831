//! One leader in all processes: `LockProvider::leader`.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use mongolock::{LockContext, LockError, LockEventKind, OnLost};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, eventually, must};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{UNRENEWED, conformance};
use crate::fixture::{AppError, Fixture, in_time};

conformance!(
    the_value_and_the_error_of_the_body_end_the_call,
    a_body_may_borrow_and_its_future_may_be_spawned,
    a_leader_that_has_lost_the_lead_campaigns_again,
    a_body_that_goes_on_after_a_loss_ends_the_call,
    a_panic_gives_up_the_lead,
    a_dropped_call_gives_up_the_lead,
    a_shutdown_gives_up_the_lead,
    start_up_work_may_take_longer_than_the_lease,
    who_waits_leads_before_who_steps_down,
    everybody_sees_who_leads,
    a_slow_observer_delays_no_election,
    permanent_errors_end_the_campaign,
);

/// The time in which a new leader leads after the lead was given up: it does not wait for the end of a lease.
const AT_ONCE: Duration = BEFORE_EXPIRY;

/// A process that leads until it is aborted, and the token with which it leads.
async fn leading(fixture: &Fixture, owner: &str) -> (JoinHandle<Result<(), LockError>>, i64) {
    let (sender, mut leads) = mpsc::unbounded_channel();
    let leader = fixture.process(owner).leader("billing");
    let campaign = tokio::spawn(async move {
        let body = async |lead: LockContext| {
            sender.send(lead.fencing_token().get()).unwrap();
            pending().await
        };
        leader.run(body).await
    });
    (campaign, in_time(leads.recv()).await.unwrap())
}

/// A process that leads once and returns its token.
fn candidate(fixture: &Fixture, owner: &str) -> JoinHandle<Result<i64, LockError>> {
    let leader = fixture.process(owner).leader("billing");
    tokio::spawn(async move { leader.run(async |lead| Ok(lead.fencing_token().get())).await })
}

async fn the_value_and_the_error_of_the_body_end_the_call(fixture: Fixture) {
    let leader = fixture.provider.leader("billing");
    let value = leader.run(async |_| Ok::<_, AppError>(7)).await;
    assert!(matches!(value, Ok(7)), "{value:?}");
    let error = leader.run(async |_| Err::<(), _>(AppError::Body)).await;
    assert!(matches!(error, Err(AppError::Body)), "{error:?}");
}

async fn a_body_may_borrow_and_its_future_may_be_spawned(fixture: Fixture) {
    let provider = fixture.provider.clone();
    let leading = tokio::spawn(async move {
        let name = String::from("billing");
        let leader = provider.leader(&name);
        let body = async |lead: LockContext| {
            sleep(Duration::from_millis(1)).await;
            Ok::<_, LockError>(lead.name() == name)
        };
        leader.run(body).await
    });
    assert!(leading.await.unwrap().unwrap());
}

async fn a_leader_that_has_lost_the_lead_campaigns_again(fixture: Fixture) {
    let leader = fixture.provider.leader("billing").expiry(UNRENEWED);
    let (terms, counter) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (begun, ended) = (Arc::clone(&terms), Arc::clone(&counter));
    let leading = tokio::spawn(async move {
        leader
            .run(async |_| {
                if begun.fetch_add(1, Ordering::SeqCst) == 0 {
                    pending::<()>().await;
                    ended.fetch_add(1, Ordering::SeqCst);
                }
                Ok::<_, LockError>(())
            })
            .await
    });
    let leads = || async { (terms.load(Ordering::SeqCst) == 1).then_some(()) };
    must(eventually(AMPLE, "the first term", leads).await);
    assert!(fixture.provider.admin().force_release("billing").await.unwrap());
    in_time(leading).await.unwrap().unwrap();
    assert_eq!(
        (terms.load(Ordering::SeqCst), counter.load(Ordering::SeqCst)),
        (2, 0)
    );
}

async fn a_body_that_goes_on_after_a_loss_ends_the_call(fixture: Fixture) {
    let leader = fixture.provider.leader("billing").on_lost(OnLost::Continue);
    let provider = fixture.provider.clone();
    let led = leader.run(async |lead: LockContext| {
        assert!(provider.admin().force_release("billing").await?);
        lead.lost().await;
        Ok::<_, LockError>("ended well")
    });
    assert_eq!(in_time(led).await.unwrap(), "ended well");
}

async fn a_panic_gives_up_the_lead(fixture: Fixture) {
    let leader = fixture.process("first").leader("billing");
    let body = leader.run(async |_| -> Result<(), LockError> { panic!("the body fails") });
    assert!(AssertUnwindSafe(body).catch_unwind().await.is_err());
    timeout(AT_ONCE, candidate(&fixture, "second"))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

async fn a_dropped_call_gives_up_the_lead(fixture: Fixture) {
    let (first, token) = leading(&fixture, "first").await;
    let second = candidate(&fixture, "second");
    first.abort();
    let next = timeout(AT_ONCE, second).await.unwrap().unwrap().unwrap();
    assert!(next > token);
}

async fn a_shutdown_gives_up_the_lead(fixture: Fixture) {
    let provider = fixture.process("first");
    let leader = provider.leader("billing");
    let leads = Arc::new(Notify::new());
    let begins = Arc::clone(&leads);
    let first = tokio::spawn(async move {
        leader
            .run(async |_| {
                begins.notify_one();
                pending::<Result<(), LockError>>().await
            })
            .await
    });
    in_time(leads.notified()).await;
    let waits = provider.leader("other");
    let held = fixture.process("other").lock("other").await.unwrap();
    let waiting = tokio::spawn(async move { waits.run(async |_| Ok::<_, LockError>(())).await });
    let second = candidate(&fixture, "second");
    provider.shutdown().await;
    timeout(AT_ONCE, second).await.unwrap().unwrap().unwrap();
    for ended in [first, waiting] {
        let ended = in_time(ended).await.unwrap();
        assert!(matches!(ended, Err(LockError::ShutDown { .. })), "{ended:?}");
    }
    held.release().await.unwrap();
}

async fn start_up_work_may_take_longer_than_the_lease(fixture: Fixture) {
    let leader = fixture.provider.leader("billing").expiry(UNRENEWED);
    let led = leader.run(async |lead: LockContext| {
        sleep(UNRENEWED * 2).await;
        Ok::<_, LockError>(lead.ensure_held().is_ok())
    });
    assert!(led.await.unwrap());
}

async fn who_waits_leads_before_who_steps_down(fixture: Fixture) {
    let first = fixture.process("first").leader("billing");
    let second = first.run(async |_| {
        let second = candidate(&fixture, "second");
        // It waits: it has found the lock held, and hears of its release.
        let provider = fixture.process("observer");
        let is_held = || async {
            provider
                .lock("billing")
                .try_acquire()
                .await
                .unwrap()
                .is_none()
                .then_some(())
        };
        must(eventually(AMPLE, "the lock is held", is_held).await);
        sleep(Duration::from_millis(500)).await;
        Ok::<_, LockError>(second)
    });
    let second = second.await.unwrap();
    let again = first.run(async |lead: LockContext| Ok::<_, LockError>(lead.fencing_token().get()));
    let again = in_time(again).await.unwrap();
    assert!(in_time(second).await.unwrap().unwrap() < again);
}

async fn everybody_sees_who_leads(fixture: Fixture) {
    let observer = fixture.process("observer").leader("billing");
    assert!(observer.current().await.unwrap().is_none());
    let mut changes = observer.watch();
    let (first, token) = leading(&fixture, "first").await;
    let current = observer.current().await.unwrap().expect("somebody leads");
    assert_eq!(
        (current.owner.as_deref(), current.fencing_token.get()),
        (Some("first"), token)
    );
    let change = in_time(changes.next()).await.unwrap().unwrap();
    assert!(
        change.kind.is_held() && change.owner.as_deref() == Some("first"),
        "{change:?}"
    );
    first.abort();
    let change = in_time(changes.next()).await.unwrap().unwrap();
    assert_eq!(change.kind, LockEventKind::Released);
    let is_none = || async { observer.current().await.unwrap().is_none().then_some(()) };
    must(eventually(AMPLE, "nobody leads", is_none).await);
}

async fn a_slow_observer_delays_no_election(fixture: Fixture) {
    let (first, _) = leading(&fixture, "first").await;
    let leader = fixture.provider.leader("billing");
    let mut changes = leader.watch();
    in_time(changes.next()).await.unwrap().unwrap();
    first.abort();
    // More changes than a stream keeps for its reader.
    for _ in 0..300 {
        in_time(leader.run(async |_| Ok::<_, LockError>(())))
            .await
            .unwrap();
    }
    drop(changes);
}

async fn permanent_errors_end_the_campaign(fixture: Fixture) {
    let begun = Instant::now();
    let body = async |_| Ok::<_, LockError>(());
    let name = fixture.provider.leader(" ").run(body).await;
    assert!(matches!(name, Err(LockError::InvalidName { .. })), "{name:?}");
    let option = fixture
        .provider
        .leader("billing")
        .expiry(Duration::ZERO)
        .run(body)
        .await;
    assert!(
        matches!(option, Err(LockError::InvalidOption { option: "expiry", .. })),
        "{option:?}"
    );
    fixture.provider.shutdown().await;
    let shut_down = fixture.provider.leader("billing").run(body).await;
    assert!(
        matches!(shut_down, Err(LockError::ShutDown { .. })),
        "{shut_down:?}"
    );
    assert!(begun.elapsed() < AMPLE);
}

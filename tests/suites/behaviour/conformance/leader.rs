//! One leader in all processes: `LockProvider::leader`.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use mongolock::{LockContext, LockError, LockEventKind, LockProvider};
use mongolock_tests::{BEFORE_EXPIRY, until};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::conformance;
use crate::fixture::{AppError, Fixture, in_time, refused_option};

conformance!(
    the_value_and_the_error_of_the_body_end_the_call,
    a_panic_and_a_dropped_call_give_up_the_lead,
    a_shutdown_gives_up_the_lead,
    everybody_sees_who_leads,
    permanent_errors_end_the_campaign,
);

/// A task that leads until it is aborted, and the token with which it leads.
async fn leading(provider: &LockProvider) -> (JoinHandle<Result<(), LockError>>, i64) {
    let (sender, mut leads) = mpsc::unbounded_channel();
    let leader = provider.leader("billing");
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

/// The token of a candidate after the lead was given up: it does not wait for the end of a lease.
async fn at_once(candidate: JoinHandle<Result<i64, LockError>>) -> i64 {
    let leads = timeout(BEFORE_EXPIRY, candidate).await;
    leads.expect("the lead was given up").unwrap().unwrap()
}

/// A body may borrow, and its future may be spawned.
async fn the_value_and_the_error_of_the_body_end_the_call(fixture: Fixture) {
    let leading = tokio::spawn(async move {
        let name = String::from("billing");
        let leader = fixture.provider.leader(&name);
        let failed = leader.run(async |_| Err::<(), _>(AppError::Body)).await;
        assert!(matches!(failed, Err(AppError::Body)), "{failed:?}");
        let body = async |lead: LockContext| {
            sleep(Duration::from_millis(1)).await;
            Ok::<_, LockError>(lead.name() == name)
        };
        leader.run(body).await
    });
    assert!(leading.await.unwrap().unwrap());
}

async fn a_panic_and_a_dropped_call_give_up_the_lead(fixture: Fixture) {
    let first = fixture.process("first");
    let leader = first.leader("billing");
    let body = leader.run(async |_| -> Result<(), LockError> { panic!("the body fails") });
    assert!(AssertUnwindSafe(body).catch_unwind().await.is_err());
    at_once(candidate(&fixture, "second")).await;

    let (dropped, token) = leading(&first).await;
    let second = candidate(&fixture, "second");
    dropped.abort();
    assert!(at_once(second).await > token);
}

async fn a_shutdown_gives_up_the_lead(fixture: Fixture) {
    let provider = fixture.process("first");
    let (first, _) = leading(&provider).await;
    let waits = provider.leader("other");
    let _held = fixture.process("other").lock("other").await.unwrap();
    let waiting = tokio::spawn(async move { waits.run(async |_| Ok::<_, LockError>(())).await });
    let second = candidate(&fixture, "second");
    provider.shutdown().await;
    at_once(second).await;
    for ended in [first, waiting] {
        let ended = in_time(ended).await.unwrap();
        assert!(matches!(ended, Err(LockError::ShutDown { .. })), "{ended:?}");
    }
}

async fn everybody_sees_who_leads(fixture: Fixture) {
    let observer = fixture.process("observer").leader("billing");
    assert!(observer.current().await.unwrap().is_none());
    let mut changes = observer.watch();
    let (first, token) = leading(&fixture.process("first")).await;
    let current = observer.current().await.unwrap().expect("somebody leads");
    let leads = (current.owner.as_deref(), current.fencing_token.get());
    assert_eq!(leads, (Some("first"), token));
    let change = in_time(changes.next()).await.unwrap().unwrap();
    let leads = change.kind.is_held() && change.owner.as_deref() == Some("first");
    assert!(leads, "{change:?}");
    first.abort();
    let change = in_time(changes.next()).await.unwrap().unwrap();
    assert_eq!(change.kind, LockEventKind::Released);
    until("nobody leads", async || {
        observer.current().await.unwrap().is_none()
    })
    .await;
}

async fn permanent_errors_end_the_campaign(fixture: Fixture) {
    let provider = &fixture.provider;
    let body = async |_| Ok::<_, LockError>(());
    let name = in_time(provider.leader(" ").run(body)).await;
    assert!(matches!(name, Err(LockError::InvalidName { .. })), "{name:?}");
    let option = in_time(provider.leader("billing").expiry(Duration::ZERO).run(body)).await;
    assert_eq!(refused_option(option), "expiry");
    provider.shutdown().await;
    let shut_down = in_time(provider.leader("billing").run(body)).await;
    let is_shut_down = matches!(shut_down, Err(LockError::ShutDown { .. }));
    assert!(is_shut_down, "{shut_down:?}");
}

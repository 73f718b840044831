//! Every argument of the attribute.

#![deny(warnings)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongolock::{LockError, LockProvider, distributed_lock};

#[distributed_lock(
    name = "a:<id>",
    expiry = r"30s",
    acquire_timeout = "2m",
    min_hold = r#"0s"#,
    max_hold = "1h",
    on_busy = "wait",
    on_lost = "cancel"
)]
async fn all(id: u8) -> Result<u8, LockError> {
    Ok(id)
}

#[distributed_lock(
    name = "b",
    acquire_timeout = "none",
    on_lost = "continue",
    release = "background"
)]
async fn endless() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "i", provider = if first { &pair.0 } else { &pair.1 })]
async fn by_expression(first: bool, pair: (LockProvider, LockProvider)) -> Result<(), LockError> {
    drop(pair);
    Ok(())
}

#[distributed_lock(name = "j", provider = find().await?)]
async fn by_failing_expression() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "k:<id>", once_at = UNIX_EPOCH + *after, provider = locks)]
async fn at_tick(locks: &LockProvider, id: u8, after: &Duration) -> Result<Option<u8>, LockError> {
    Ok(Some(id))
}

/// A tick that is no `Copy` type, which the body moves.
#[derive(Clone)]
struct Tick(SystemTime);

impl From<Tick> for SystemTime {
    fn from(tick: Tick) -> Self {
        tick.0
    }
}

#[distributed_lock(name = "l", once_at = tick, provider = locks)]
async fn with_its_tick(locks: &LockProvider, tick: Tick) -> Result<Tick, LockError> {
    Ok(tick)
}

async fn find() -> Result<LockProvider, LockError> {
    Ok(LockProvider::in_memory())
}

#[tokio::test]
async fn every_argument_in_other_forms() -> Result<(), LockError> {
    let provider = LockProvider::in_memory();
    assert_eq!(provider.scope(all(1)).await?, 1);
    provider.scope(endless()).await?;
    by_expression(true, (provider.clone(), provider)).await?;
    by_failing_expression().await
}

#[tokio::test]
async fn a_tick_is_an_expression() -> Result<(), LockError> {
    let locks = LockProvider::in_memory();
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(at_tick(&locks, 1, &day).await?, Some(1));
    assert_eq!(at_tick(&locks, 1, &day).await?, None);
    assert_eq!(at_tick(&locks, 2, &day).await?, Some(2));
    assert_eq!(at_tick(&locks, 1, &(day * 2)).await?, Some(1));
    assert!(locks.admin().get("k:1@1970-01-02T00:00:00Z").await?.is_some());
    let tick = with_its_tick(&locks, Tick(UNIX_EPOCH)).await?;
    let again = with_its_tick(&locks, tick).await;
    assert!(matches!(again, Err(LockError::Done { .. })));
    Ok(())
}

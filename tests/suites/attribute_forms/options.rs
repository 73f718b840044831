//! Every argument of the attribute, in forms that the fixture does not have.

#![deny(warnings)]

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

#[distributed_lock(name = "i", provider = if first { &pair.0 } else { &pair.1 })]
async fn by_expression(first: bool, pair: (LockProvider, LockProvider)) -> Result<(), LockError> {
    drop(pair);
    Ok(())
}

#[distributed_lock(name = "j", provider = find().await?)]
async fn by_failing_expression() -> Result<(), LockError> {
    Ok(())
}

async fn find() -> Result<LockProvider, LockError> {
    Ok(LockProvider::in_memory())
}

#[tokio::test]
async fn every_argument_in_other_forms() -> Result<(), LockError> {
    let provider = LockProvider::in_memory();
    assert_eq!(provider.scope(all(1)).await?, 1);
    by_expression(true, (provider.clone(), provider)).await?;
    by_failing_expression().await
}

//! Every argument of the attribute, in forms that the fixture does not have.

#![deny(warnings)]

use std::sync::Arc;

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

#[distributed_lock(name = "b", acquire_timeout = "none", on_lost = "continue")]
async fn for_ever() -> Result<(), LockError> {
    Ok(())
}

struct Service {
    provider: Arc<LockProvider>,
    id: u8,
}

impl Service {
    fn provider(&self) -> &LockProvider {
        &self.provider
    }

    #[distributed_lock(name = "g:<self.id>", provider = self.provider())]
    async fn by_method(&mut self) -> Result<u8, LockError> {
        self.id += 1;
        Ok(self.id)
    }

    #[distributed_lock(name = "h:<self.id>", provider = &*self.provider)]
    async fn by_reference(self) -> Result<u8, LockError> {
        Ok(self.id)
    }
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
    assert!(matches!(for_ever().await, Err(LockError::NoProvider)));
    let provider = LockProvider::in_memory();
    provider
        .scope(async {
            assert_eq!(all(1).await?, 1);
            for_ever().await
        })
        .await?;
    let mut service = Service {
        provider: Arc::new(provider.clone()),
        id: 1,
    };
    assert_eq!(service.by_method().await?, 2);
    assert_eq!(service.by_reference().await?, 2);
    by_expression(true, (provider.clone(), provider)).await?;
    by_failing_expression().await
}

//! Other attributes on the same function, above and below this one.

#![deny(warnings)]

use async_trait::async_trait;
use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

/// Documented, and more.
#[must_use]
#[inline]
#[distributed_lock(name = "a:<id>")]
#[cfg(not(any()))]
pub async fn ordinary(id: u8) -> Result<u8, LockError> {
    Ok(id)
}

#[distributed_lock(name = "d", provider = LockProvider::in_memory())]
#[tokio::test]
async fn locked_test() -> Result<(), LockError> {
    Ok(())
}

#[allow(improper_ctypes_definitions)]
#[distributed_lock(name = "g:<id>")]
async extern "C" fn with_abi(id: u8) -> Result<u8, LockError> {
    Ok(id)
}

#[async_trait]
trait Service: Sync {
    async fn run(&self, id: u8, text: &str) -> Result<String, LockError>;

    async fn change(&mut self, by: u8) -> anyhow::Result<&u8>;
}

struct Local {
    tenant: String,
    count: u8,
}

#[async_trait]
impl Service for Local {
    #[distributed_lock(name = "i:<self.tenant>:<id>:<text>")]
    async fn run(&self, id: u8, text: &str) -> Result<String, LockError> {
        if id == 0 {
            return Ok(text.to_owned());
        }
        let context = LockContext::current().expect("the body runs under the lock");
        Ok(format!("{} {}", context.name(), self.count))
    }

    #[distributed_lock(name = "j:<self.tenant>")]
    #[tracing::instrument(skip(self))]
    async fn change(&mut self, by: u8) -> anyhow::Result<&u8> {
        self.count += by;
        Ok(&self.count)
    }
}

#[tokio::test]
async fn attributes_beside_the_lock() -> anyhow::Result<()> {
    LockProvider::in_memory()
        .scope(async {
            assert_eq!(ordinary(1).await?, 1);
            assert_eq!(with_abi(1).await?, 1);
            let mut local = Local {
                tenant: "t".to_owned(),
                count: 1,
            };
            assert_eq!(local.run(1, "x").await?, "i:t:1:x 1");
            assert_eq!(local.run(0, "x").await?, "x");
            assert_eq!(*local.change(4).await?, 5);
            Ok(())
        })
        .await
}

use mongolock::{LockError, distributed_lock};

use async_trait::async_trait;

#[async_trait]
pub trait Service {
    async fn job(&self, pair: (u64, u64)) -> Result<(), LockError>;
}

struct Local;

#[async_trait]
impl Service for Local {
    #[distributed_lock(name = "job:<left>")]
    async fn job(&self, (left, right): (u64, u64)) -> Result<(), LockError> {
        let _ = (left, right);
        Ok(())
    }
}

fn main() {}

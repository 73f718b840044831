use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", #[cfg(feature = "slow")] expiry = "5m")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", expiry = "30s", renew_interval = "40s")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", renew_interval = "7d")]
async fn alone() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

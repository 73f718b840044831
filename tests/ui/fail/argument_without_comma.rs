use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job" expiry = "30s")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", expiry = "30s", expiry = "40s")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", ttl = "30s")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expires = "30s")]
async fn near() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

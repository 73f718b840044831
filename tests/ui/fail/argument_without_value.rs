use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", expiry)]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name("job"))]
async fn listed() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

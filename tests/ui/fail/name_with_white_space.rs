use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = " job")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job\u{a0}")]
async fn after() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

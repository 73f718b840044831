use mongolock::{LockError, distributed_lock};

#[distributed_lock("job")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", skip)]
async fn value() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

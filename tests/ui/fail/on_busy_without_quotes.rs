use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", on_busy = skip)]
async fn skips() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", on_busy = Wait)]
async fn waits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", on_busy = 3)]
async fn number() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

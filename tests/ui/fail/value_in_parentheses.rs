use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
#[lock("a")]
struct Nightly;

#[distributed_lock(name = (Nightly))]
async fn declared() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = (["a", "b"]))]
async fn list() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry("3s"))]
async fn called() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry: Duration::from_secs(3))]
async fn colon() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

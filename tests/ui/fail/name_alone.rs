use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
enum Lock {
    #[lock("a")]
    A,
    #[lock("b:<0>")]
    B(u64),
}

#[distributed_lock(Lock::A)]
async fn variant() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(Lock::B(id), expiry = "30s")]
async fn tuple(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(["a", "b"])]
async fn list() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

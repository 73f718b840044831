use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", min_hold = "1h", max_hold = "1m")]
async fn min_first() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", max_hold = "1m", min_hold = "61s")]
async fn max_first() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", max_hold = "1m", min_hold = "60s")]
async fn equal() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

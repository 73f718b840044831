use mongolock::{LockError, distributed_lock};

#[distributed_lock(key = "job", ttl = "30s", timeout = "1s")]
async fn first() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", lock_at_most_for = "30s", lockAtLeastFor = "1s", wait = "1s")]
async fn second() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", lease = "30s", skip = true)]
async fn third() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", limit = 5)]
async fn limited() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", max_concurrent = 5)]
async fn concurrent() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", daily)]
async fn daily() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

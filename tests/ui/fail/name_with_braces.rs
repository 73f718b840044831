use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:{id}")]
async fn job(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job:{}")]
async fn positional(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job}")]
async fn alone() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

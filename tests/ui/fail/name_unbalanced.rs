use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<id")]
async fn job(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job:id>")]
async fn closed(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job:<<id>")]
async fn doubled(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}

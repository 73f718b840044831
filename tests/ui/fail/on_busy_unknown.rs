use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", on_busy = "skipp")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", on_busy = "retry")]
async fn far() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

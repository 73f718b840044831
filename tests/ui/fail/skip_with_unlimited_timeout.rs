use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", on_busy = "skip", acquire_timeout = "none")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", expiry = 30, on_busy = skip, acquire_timeout = None, min_hold = Duration::from_secs(1))]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

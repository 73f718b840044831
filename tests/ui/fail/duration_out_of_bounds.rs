use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", expiry = "99ms", renew_interval = "0s", acquire_timeout = "8d", min_hold = "169h", max_hold = "8d")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

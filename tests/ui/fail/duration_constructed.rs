use mongolock::{LockError, distributed_lock};

#[distributed_lock(
    name = "job",
    expiry = Duration::from_secs(90),
    renew_interval = std::time::Duration::from_millis(500),
    acquire_timeout = Duration::from_secs(90),
    min_hold = Duration::from_secs(SECONDS)
)]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", on_busy = "fail", acquire_timeout = "1s")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

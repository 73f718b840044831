use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job\n")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

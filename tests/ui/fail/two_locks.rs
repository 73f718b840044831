use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "first")]
#[distributed_lock(name = "second")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "  ")]
async fn blank() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

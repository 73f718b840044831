use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job")]
fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

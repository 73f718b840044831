use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", crate = nowhere)]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

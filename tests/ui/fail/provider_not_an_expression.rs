use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", provider = ?)]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(expiry = "30s")]
async fn job(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}

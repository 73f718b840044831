use mongolock::{LockError, distributed_lock};

#[distributed_lock(name: "job:<id>", expiry: "30s")]
async fn job(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}

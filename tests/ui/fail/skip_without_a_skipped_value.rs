use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<id>", on_busy = "skip")]
async fn job(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job:<id>", on_busy = "skip")]
async fn list(id: u64) -> Vec<u64> {
    vec![id]
}

fn main() {}

use mongolock::{LockError, distributed_lock};

fn name_of(id: u64) -> String {
    format!("job:{id}")
}

#[distributed_lock(name = name_of(id))]
async fn job(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = concat!("job:", "<id>"))]
async fn concatenated(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = b"job")]
async fn bytes() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

const NAME: &str = "job";

#[distributed_lock(name = NAME)]
async fn job() -> Result<(), LockError> {
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

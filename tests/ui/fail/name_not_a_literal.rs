use mongolock::{LockError, LockName, distributed_lock};

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

// A declared lock name, but not as a path or a struct expression.
#[derive(LockName)]
#[lock("nightly")]
struct Nightly;

struct Jobs {
    lock: Nightly,
}

impl Jobs {
    #[distributed_lock(name = self.lock)]
    async fn field(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(name = &self.lock)]
    async fn reference(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}

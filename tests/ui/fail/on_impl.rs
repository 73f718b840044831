use mongolock::{LockError, distributed_lock};

struct Service;

#[distributed_lock(name = "job")]
impl Service {
    async fn job(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", provider = 3 + 4)]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[tokio::main(flavor = "current_thread")]
#[distributed_lock(name = "job")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", on_lost = "cancle")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

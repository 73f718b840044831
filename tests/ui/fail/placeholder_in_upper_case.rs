use mongolock::{LockError, distributed_lock};

// The argument is `id`.
#[distributed_lock(name = "order:<ID>")]
async fn order(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}

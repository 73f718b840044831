use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "<a><b>")]
async fn job(a: u64, b: u64) -> Result<(), LockError> {
    let _ = (a, b);
    Ok(())
}

fn main() {}

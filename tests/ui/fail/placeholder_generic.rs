use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<N>")]
async fn job<const N: usize>() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

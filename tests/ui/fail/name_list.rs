use mongolock::{LockError, distributed_lock};

const OTHER: &str = "account:other";

#[distributed_lock(name = [])]
async fn none() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = ["account:<from>", "account:<from>"])]
async fn twice(from: u64, to: u64) -> Result<(), LockError> {
    let _ = (from, to);
    Ok(())
}

#[distributed_lock(name = ["account:<form>", "", OTHER])]
async fn misspelt(from: u64) -> Result<(), LockError> {
    let _ = from;
    Ok(())
}

fn main() {}

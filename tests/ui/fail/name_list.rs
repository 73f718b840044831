use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
enum Lock {
    #[lock("total")]
    Total,
}

fn other() -> String {
    "account:other".to_owned()
}

#[distributed_lock(name = [])]
async fn none() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = ["account:<from>", "account:<from>", Lock::Total, Lock::Total])]
async fn twice(from: u64, to: u64) -> Result<(), LockError> {
    let _ = (from, to);
    Ok(())
}

#[distributed_lock(name = ["account:<form>", "", other()])]
async fn misspelt(from: u64) -> Result<(), LockError> {
    let _ = from;
    Ok(())
}

fn main() {}

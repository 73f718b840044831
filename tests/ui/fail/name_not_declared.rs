use mongolock::{LockError, LockProvider, distributed_lock};

const NAME: &str = "job";

struct Job {
    id: u64,
}

#[distributed_lock(name = NAME)]
async fn constant() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = Job { id })]
async fn not_derived(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = id)]
async fn text(id: &str) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = nightly)]
async fn without_quotes() -> Result<(), LockError> {
    Ok(())
}

async fn by_hand(provider: &LockProvider) -> Result<(), LockError> {
    provider.lock(Some(1)).acquire().await?.release().await
}

fn main() {}

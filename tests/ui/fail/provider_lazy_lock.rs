use std::sync::LazyLock;

use mongolock::{LockError, LockProvider, distributed_lock};

static LOCKS: LazyLock<LockProvider> = LazyLock::new(LockProvider::in_memory);

#[distributed_lock(name = "job", provider = LOCKS)]
async fn job() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", provider = *LOCKS)]
async fn right() -> Result<(), LockError> {
    Ok(())
}

fn main() {}

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

#[distributed_lock(name = "job:<lock.name()>")]
async fn in_the_name(#[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

#[distributed_lock(name = "job", provider = provider_of(&lock))]
async fn in_the_provider(#[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

fn provider_of(_: &LockContext) -> LockProvider {
    LockProvider::in_memory()
}

// The argument is filled in by the attribute, so a caller cannot pass it.
#[distributed_lock(name = "job:<id>")]
async fn job(id: u64, #[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

async fn caller(lock: LockContext) -> Result<(), LockError> {
    job(1, lock).await
}

fn main() {}

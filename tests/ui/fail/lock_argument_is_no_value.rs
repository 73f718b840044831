use mongolock::{LockContext, LockError, LockName, LockProvider, distributed_lock};

#[distributed_lock(name = "job:<lock.name()>")]
async fn in_the_name(#[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

#[distributed_lock(name = "job", provider = provider_of(&lock))]
async fn in_the_provider(#[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

#[distributed_lock(name = "job", provider = { let lock = provider_of(&lock); lock })]
async fn in_the_own_variable_of_the_provider(#[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

fn provider_of(_: &LockContext) -> LockProvider {
    LockProvider::in_memory()
}

#[derive(LockName)]
#[lock("job:<token>")]
struct Job {
    token: i64,
}

#[distributed_lock(name = Job { token: lock.fencing_token().get() })]
async fn in_a_declared_name(#[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

#[distributed_lock(name = lock)]
async fn as_the_name(#[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
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

//! The argument `#[lock] lock: LockContext`.

#![allow(unused)]

use mongolock::{LockContext, LockError, LockName, LockProvider, distributed_lock};

// Other forms.
#[distributed_lock(name = "job")]
async fn two(#[lock] one: LockContext, #[lock] other: LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job")]
async fn pattern(#[lock] mut lock: LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job")]
async fn reference(#[lock] lock: &LockContext) -> Result<(), LockError> { Ok(()) }

// Another type of that name.
mod other {
    pub struct LockContext;
}

#[distributed_lock(name = "job")]
async fn other_type(#[lock] lock: other::LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job")]
async fn conditional(#[cfg(unix)] #[lock] lock: LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job")]
async fn content(#[lock("job")] lock: LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job")]
async fn optional(#[lock] lock: Option<LockContext>) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job")]
async fn mutable(#[lock] lock: &'static mut LockContext) -> Result<(), LockError> { Ok(()) }

struct Service;

impl Service {
    #[distributed_lock(name = "job")]
    async fn receiver(#[lock] &self, id: u64) -> Result<(), LockError> { Ok(()) }
}

trait Declared {
    #[distributed_lock(name = "job")]
    async fn declared(&self, #[lock] lock: LockContext) -> Result<(), LockError>;
}

// Callers still compile: the argument is not theirs, also after a mistake.
async fn caller() {
    let _ = pattern().await;
    let _ = reference().await;
    let _ = conditional().await;
    let _ = content().await;
    let _ = optional().await;
    let _ = Service.receiver(1).await;
}

// The lock as a value that is needed to acquire it.
#[distributed_lock(name = "job:<lock.name()>")]
async fn in_the_name(#[lock] lock: LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", provider = provider_of(&lock))]
async fn in_the_provider(#[lock] lock: LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", provider = { let lock = provider_of(&lock); lock })]
async fn in_the_own_variable_of_the_provider(#[lock] lock: LockContext) -> Result<(), LockError> { Ok(()) }

fn provider_of(_: &LockContext) -> LockProvider {
    LockProvider::in_memory()
}

#[derive(LockName)]
#[lock("job:<token>")]
struct Job {
    token: i64,
}

#[distributed_lock(name = Job { token: lock.fencing_token().get() })]
async fn in_a_declared_name(#[lock] lock: LockContext) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = lock)]
async fn as_the_name(#[lock] lock: LockContext) -> Result<(), LockError> { Ok(()) }

// The argument is filled in by the attribute, so a caller cannot pass it.
#[distributed_lock(name = "job:<id>")]
async fn job(id: u64, #[lock] lock: LockContext) -> Result<(), LockError> { Ok(()) }

async fn passes_it(lock: LockContext) -> Result<(), LockError> {
    job(1, lock).await
}

fn main() {}

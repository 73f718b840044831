use mongolock::{LockContext, LockError, distributed_lock};

#[distributed_lock(name = "job")]
async fn two(#[lock] one: LockContext, #[lock] other: LockContext) -> Result<(), LockError> {
    drop((one, other));
    Ok(())
}

#[distributed_lock(name = "job")]
async fn pattern(#[lock] mut lock: LockContext) -> Result<(), LockError> {
    lock = lock.clone();
    drop(lock);
    Ok(())
}

#[distributed_lock(name = "job")]
async fn reference(#[lock] lock: &LockContext) -> Result<(), LockError> {
    let _ = lock.name();
    Ok(())
}

// Another type of that name.
mod other {
    pub struct LockContext;
}

#[distributed_lock(name = "job")]
async fn other_type(#[lock] lock: other::LockContext) -> Result<(), LockError> {
    drop(lock);
    Ok(())
}

#[distributed_lock(name = "job")]
async fn conditional(#[cfg(unix)] #[lock] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

#[distributed_lock(name = "job")]
async fn content(#[lock("job")] lock: LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

#[distributed_lock(name = "job")]
async fn optional(#[lock] lock: Option<LockContext>) -> Result<(), LockError> {
    drop(lock);
    Ok(())
}

#[distributed_lock(name = "job")]
async fn mutable(#[lock] lock: &'static mut LockContext) -> Result<(), LockError> {
    lock.ensure_held()
}

struct Service;

impl Service {
    #[distributed_lock(name = "job")]
    async fn receiver(#[lock] &self, id: u64) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }
}

trait Job {
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

fn main() {}

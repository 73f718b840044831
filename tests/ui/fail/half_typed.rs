//! While an argument of the function is being typed, the only error is the compiler's.

use mongolock::{Busy, LockContext, LockError, distributed_lock};

#[distributed_lock(name = "job:<id>")]
async fn no_type(id: ) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job:<id>", provider = locks)]
async fn not_last(locks: &, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job:<id>", on_busy = answer)]
async fn no_colon(id) -> Result<(), LockError> {
    Ok(())
}

fn answer(_: &u64, _: &Busy) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job:<id>")]
async fn beside_the_lock(#[lock] lock: LockContext, id: ) -> Result<(), LockError> {
    lock.ensure_held()
}

#[distributed_lock(name = "job")]
async fn the_lock(id: u64, #[lock] lock: ) -> Result<(), LockError> {
    let _ = id;
    lock.ensure_held()
}

struct Service;

impl Service {
    #[distributed_lock(name = "job:<self.region>")]
    async fn receiver(&) -> Result<(), LockError> {
        Ok(())
    }
}

async fn caller(service: &Service) {
    let _ = no_type(1).await;
    let _ = the_lock(1).await;
}

fn main() {}

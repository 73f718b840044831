use mongolock::{LockError, distributed_lock};

use std::future::Future;

#[distributed_lock(name = "job")]
fn job() -> impl Future<Output = Result<(), LockError>> {
    async { Ok(()) }
}

fn main() {}

use std::future::Future;
use std::pin::Pin;

use mongolock::{LockError, distributed_lock};

type Boxed = Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>>;

// The early return would run without the lock, and the name would be made of the other `id`.
#[distributed_lock(name = "job:<id>")]
fn early_return(id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>> {
    if id == 0 {
        return Box::pin(async move { Ok(0) });
    }
    let id = id + 1;
    Box::pin(async move { Ok(id) })
}

#[distributed_lock(name = "job:<id>")]
fn one_statement(id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>> {
    let id = id + 1;
    Box::pin(async move { Ok(id) })
}

#[distributed_lock(name = "job:<id>")]
fn alias(id: u64) -> Boxed {
    Box::pin(async move { Ok(id) })
}

fn main() {}

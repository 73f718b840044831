//! Twenty-four functions, each locked and calling the next, compile on a task with a recursion limit of 256,
//! where each function stands before the one that it calls.

#![recursion_limit = "256"]

use mongolock::{LockError, LockProvider, distributed_lock};

macro_rules! locked {
    ($outer:ident $inner:ident $($rest:ident)*) => {
        #[distributed_lock(name = "all of them")]
        async fn $outer(id: u64) -> Result<u64, LockError> {
            $inner(id).await
        }

        locked!($inner $($rest)*);
    };
    ($innermost:ident) => {};
}

locked!(
    f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24 innermost
);

async fn innermost(id: u64) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    LockProvider::in_memory().set_global().unwrap();
    let task = tokio::spawn(f1(1));
    assert_eq!(task.await.unwrap().unwrap(), 1);
}

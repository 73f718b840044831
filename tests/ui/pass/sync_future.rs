//! The future of a locked function is `Sync` if that of the plain function is.

use mongolock::{LockError, LockProvider, distributed_lock};

#[distributed_lock(name = "job:<id>")]
async fn waits(id: u64) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(name = "job:<id>", on_busy = "skip", on_lost = "continue")]
async fn skips(id: u64) -> Result<Option<u64>, LockError> {
    tokio::task::yield_now().await;
    Ok(Some(id))
}

fn send_and_sync<F: Send + Sync>(future: F) -> F {
    future
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    LockProvider::in_memory().set_global().unwrap();
    assert_eq!(send_and_sync(waits(1)).await.unwrap(), 1);
    assert_eq!(send_and_sync(skips(1)).await.unwrap(), Some(1));
}

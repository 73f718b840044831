//! A worker that ends well on SIGTERM: it finishes the job in progress, begins no other, and releases its locks.
//!
//! ```text
//! cargo run -p mongolock --example worker
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example worker
//! ```
//!
//! End it with `kill`, as Kubernetes and systemd do. With `MONGODB_URI`, start several: each order is processed by one
//! worker at a time, and the others go on with the next order.

use std::env;
use std::time::Duration;

use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::signal::unix::{SignalKind, signal};

/// How long a job may go on after SIGTERM. If MongoDB does not answer, the end takes up to 22 s more; Kubernetes kills after
/// 30 s in all, unless `terminationGracePeriodSeconds` says otherwise.
const GRACE: Duration = Duration::from_secs(8);

#[distributed_lock(name = "order:<order>", on_busy = "skip")]
async fn process(order: u32) -> Result<(), LockError> {
    println!("order {order} begins");
    // The work.
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("order {order} is done");
    Ok(())
}

/// Processes one order after the other until the provider is shut down.
async fn work() {
    for order in (1..=100).cycle() {
        match process(order).await {
            Ok(()) => {}
            Err(LockError::ShutDown { .. }) => break,
            Err(error) => {
                eprintln!("order {order} failed: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    locks.clone().set_global()?;

    let mut terminate = signal(SignalKind::terminate())?;
    let worker = tokio::spawn(work());

    terminate.recv().await;
    println!("SIGTERM: waiting for the job in progress");
    // No other job gets its lock. A job that still runs after the grace period is cancelled at its next await point.
    locks.shutdown_after(GRACE).await;
    worker.await?;
    println!("all locks are released");
    Ok(())
}

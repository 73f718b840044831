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
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a job may go on after SIGTERM. `shutdown` takes up to 15 s after that; Kubernetes kills after 30 s in all,
/// unless `terminationGracePeriodSeconds` says otherwise.
const GRACE: Duration = Duration::from_secs(10);

#[distributed_lock(name = "order:<order>", on_busy = "skip")]
async fn process(order: u32) -> Result<(), LockError> {
    println!("order {order} begins");
    // The work.
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("order {order} is done");
    Ok(())
}

/// Processes one order after the other until it is to stop.
async fn work(stop: watch::Receiver<bool>) {
    for order in (1..=100).cycle() {
        if *stop.borrow() {
            break;
        }
        if let Err(error) = process(order).await {
            eprintln!("order {order} failed: {error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
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
    let (stop, stopping) = watch::channel(false);
    let mut worker = tokio::spawn(work(stopping));

    terminate.recv().await;
    println!("SIGTERM: waiting for the job in progress");
    stop.send_replace(true);
    if timeout(GRACE, &mut worker).await.is_err() {
        println!("the job takes too long and is cancelled");
    }
    // Releases all locks at the server. A job that still runs is cancelled at its next await point.
    locks.shutdown().await;
    println!("all locks are released");
    Ok(())
}

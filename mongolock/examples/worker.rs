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

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long a job may go on after SIGTERM. `shutdown` takes up to 15 s after that; Kubernetes kills after 30 s in all,
/// unless `terminationGracePeriodSeconds` says otherwise.
const GRACE: Duration = Duration::from_secs(10);

#[distributed_lock(name = "order:<order>", on_busy = "skip", provider = locks)]
async fn process(locks: &LockProvider, order: u32) -> Result<(), LockError> {
    println!("order {order} begins");
    // The work.
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("order {order} is done");
    Ok(())
}

/// Processes one order after the other until it is to stop.
async fn work(locks: LockProvider, stop: watch::Receiver<bool>) -> Result<(), LockError> {
    for order in (1..=100).cycle() {
        if *stop.borrow() {
            break;
        }
        process(&locks, order).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let (stop, stopping) = watch::channel(false);
    let mut worker = tokio::spawn(work(locks.clone(), stopping));

    tokio::select! {
        _ = terminate.recv() => println!("SIGTERM: the job in progress is finished"),
        ended = &mut worker => return Ok(ended??),
    }
    stop.send_replace(true);
    let finished = timeout(GRACE, &mut worker).await;
    if finished.is_err() {
        println!("the job takes too long and is cancelled");
    }
    // Releases all locks at the server. A job that still runs is cancelled at its next await point.
    locks.shutdown().await;
    println!("all locks are released");
    Ok(())
}

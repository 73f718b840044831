//! Skip the work if another process is doing it: of three instances, one imports at a time, and the others go on.
//!
//! ```text
//! cargo run -p mongolock --example skip_if_busy
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example skip_if_busy
//! ```
//!
//! The instances are tasks of one process here, and processes on different machines in production.
//! A copy in `src/main.rs` needs `cargo add mongolock anyhow tokio --features tokio/full`.

use std::env;
use std::time::Duration;

use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Returns the number of rows, or `None` if another instance is importing. `max_hold` ends an import that hangs.
#[distributed_lock(name = "import", on_busy = "skip", max_hold = "1h", provider = locks)]
async fn import(locks: &LockProvider, instance: u32) -> Result<Option<u32>, LockError> {
    println!("instance {instance} begins an import");
    tokio::time::sleep(Duration::from_millis(300)).await; // the work
    println!("instance {instance} ends its import");
    Ok(Some(1000))
}

/// Imports what is new, again and again, until the provider is shut down.
async fn work(locks: LockProvider, instance: u32) {
    loop {
        match import(&locks, instance).await {
            Ok(Some(rows)) => println!("instance {instance} has imported {rows} rows"),
            Ok(None) => println!("instance {instance} skips the import"),
            Err(LockError::ShutDown { .. }) => break,
            // MongoDB is down or refuses: that is never reported as "skipped".
            Err(error) => eprintln!("instance {instance} has not imported: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    let mut instances = JoinSet::new();
    for instance in 1..=3 {
        instances.spawn(work(locks.clone(), instance));
    }
    ctrl_c.recv().await;
    println!("waiting for the import in progress");
    // No other import begins. One that still runs after this time is cancelled at its next await point.
    locks.shutdown_after(Duration::from_secs(8)).await;
    instances.join_all().await;
    println!("all instances have ended");
    Ok(())
}

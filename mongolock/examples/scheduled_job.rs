//! A scheduled job on several instances: every instance fires, one of them runs the job, the others skip it.
//!
//! ```text
//! cargo run -p mongolock --example scheduled_job
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example scheduled_job
//! ```
//!
//! The three instances are tasks here. In production they are processes on different machines, and each of them calls
//! `nightly_report` from its scheduler. With `MONGODB_URI`, a second run within a minute skips the job three times.

use std::env;
use std::time::Duration;

use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::task::JoinSet;

/// Returns the number of rows in the report, or `None` if another instance has run the job or is running it.
///
/// `min_hold` keeps the lock taken for a minute even if the job ends sooner: an instance whose clock is some seconds late
/// must not find it free. `max_hold` ends a run that hangs.
#[distributed_lock(
    name = "nightly-report",
    on_busy = "skip",
    min_hold = "1m",
    max_hold = "2h",
    provider = locks,
)]
async fn nightly_report(locks: &LockProvider) -> Result<Option<u32>, LockError> {
    // The work.
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(Some(1000))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };

    let mut instances = JoinSet::new();
    for number in 1..=3 {
        // A provider of its own is what another process would have. The owner shows who holds a lock.
        let locks = locks.to_builder().owner(format!("instance {number}")).build()?;
        instances.spawn(async move {
            // The clocks of the instances differ.
            tokio::time::sleep(Duration::from_millis(20) * number).await;
            match nightly_report(&locks).await {
                Ok(Some(rows)) => println!("instance {number} has written {rows} rows"),
                Ok(None) => println!("instance {number} skips the job"),
                // MongoDB is down or refuses: that is never reported as "skipped".
                Err(error) => eprintln!("instance {number} failed: {error}"),
            }
            locks.shutdown().await;
        });
    }
    instances.join_all().await;
    Ok(())
}

//! What an operator sees: the locks that are held now, who holds them, and how long their leases run.
//!
//! ```text
//! cargo run -p mongolock --example operator_list
//! MONGODB_URI=mongodb://localhost/app cargo run -p mongolock --example operator_list -- report:
//! ```
//!
//! With `MONGODB_URI` it lists the locks of all processes that use this database, and changes nothing. An argument limits
//! the list to names that begin with it. Without `MONGODB_URI` it lists two locks of its own in memory.

use std::env;
use std::time::{Duration, SystemTime};

use mongolock::{LockError, LockFilter, LockProvider, LockState};

async fn list(locks: &LockProvider, prefix: &str) -> Result<(), LockError> {
    let held = LockFilter::new().prefix(prefix).state(LockState::Held);
    let held = locks.admin().list(held).await?;
    println!(
        "{:<20} {:<20} {:>8} {:>14}  fencing token",
        "lock", "owner", "held for", "lease runs for"
    );
    for lock in &held {
        // Locks of DistributedLock.MongoDB for .NET have no owner.
        let owner = lock.owner.as_deref().unwrap_or("unknown");
        // By the clock of this machine. The rest of the lease is what the server says.
        let age = SystemTime::now()
            .duration_since(lock.acquired_at.to_system_time())
            .unwrap_or_default();
        println!(
            "{:<20} {owner:<20} {:>8} {:>14}  {}",
            lock.name,
            seconds(age),
            seconds(lock.remaining),
            lock.fencing_token
        );
    }
    println!("locks held: {}", held.len());
    Ok(())
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let prefix = env::args().nth(1).unwrap_or_default();
    if let Ok(uri) = env::var("MONGODB_URI") {
        return Ok(list(&LockProvider::connect(uri).await?, &prefix).await?);
    }
    let locks = LockProvider::in_memory();
    let billing = locks.to_builder().owner("billing-1").build()?;
    let _report = billing.lock("report:42").await?;
    let _invoice = billing.lock("invoice:7").await?;
    Ok(list(&locks, &prefix).await?)
}

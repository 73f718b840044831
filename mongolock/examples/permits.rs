//! At most two exports of a tenant run at the same time, in all processes; the others wait for a permit.
//!
//! ```text
//! cargo run -p mongolock --example permits
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example permits
//! ```
//!
//! The three instances are tasks here. In production they are processes on different machines. Without `MONGODB_URI` the
//! permits are kept in memory.
//! A copy in `src/main.rs` needs `cargo add mongolock anyhow tokio --features tokio/full`.

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::task::JoinSet;

/// The exports that run at present.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// A permit limits the load. It has no fencing token: data that a stale holder must not change needs a lock as well.
#[distributed_lock(name = "export:<tenant>", permits = 2, provider = locks)]
async fn export(locks: &LockProvider, tenant: &str, number: u32) -> Result<(), LockError> {
    let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
    println!("export {number} of {tenant} begins, {running} of at most 2");
    tokio::time::sleep(Duration::from_millis(50)).await;
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    let mut exports = JoinSet::new();
    for instance in 0..3 {
        // A provider of its own is what another process would have.
        let locks = locks.to_builder().owner(format!("instance {instance}")).build()?;
        for number in 1..=2 {
            let locks = locks.clone();
            exports.spawn(async move { export(&locks, "acme", instance * 2 + number).await });
        }
    }
    while let Some(ended) = exports.join_next().await {
        ended??;
    }
    // The same semaphore without the attribute.
    let free = locks.semaphore("export:acme", 2).available().await?;
    println!("all exports have ended, {free} permits are free");
    locks.shutdown().await;
    Ok(())
}

//! A schedule of `tokio-cron-scheduler` on three instances: each tick is done once, however late an instance is.
//!
//! ```text
//! cargo run -p mongolock --example cron
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example cron
//! ```
//!
//! The instances are tasks here. In production they are processes on different machines: start the program twice with
//! `MONGODB_URI`. Ctrl-C ends it. Without `MONGODB_URI` the locks are kept in memory.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongolock::{LockError, LockProvider, distributed_lock};
use tokio_cron_scheduler::{Job, JobScheduler};

/// Every second second.
const SCHEDULE: &str = "*/2 * * * * *";
const PERIOD: u64 = 2;

/// The scheduled time of the present tick, in seconds since 1970. A scheduler fires at that time or a little later by the
/// clock of its own machine, so rounding that clock down gives the same number on all instances, whatever their clocks say.
fn tick() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / PERIOD * PERIOD
}

/// Returns `None` if another instance has written the report of this tick.
///
/// The success marks the lock as done instead of releasing it. After an error or a crash the lock is free, and an instance
/// that waits meanwhile writes the report.
#[distributed_lock(name = "report:<tick>", once = true, provider = locks)]
async fn write_report(locks: &LockProvider, instance: u32, tick: u64) -> Result<Option<()>, LockError> {
    println!("instance {instance} writes the report of {tick}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(Some(()))
}

async fn at_tick(locks: LockProvider, instance: u32) {
    let tick = tick();
    match write_report(&locks, instance, tick).await {
        Ok(None) => println!("instance {instance} finds the report of {tick}"),
        // It has written the report, or the program ends.
        Ok(Some(())) | Err(LockError::ShutDown { .. } | LockError::Lost { .. }) => {}
        Err(error) => eprintln!("instance {instance} has no report of {tick}: {error}"),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    let mut instances = Vec::new();
    for number in 1..=3 {
        // A provider of its own is what another process would have.
        let own = locks.to_builder().owner(format!("instance {number}")).build()?;
        let scheduler = JobScheduler::new().await?;
        let job = {
            let own = own.clone();
            Job::new_async(SCHEDULE, move |_, _| Box::pin(at_tick(own.clone(), number)))?
        };
        scheduler.add(job).await?;
        scheduler.start().await?;
        instances.push((scheduler, own));
    }
    println!("three instances wait for the schedule {SCHEDULE}; Ctrl-C ends the program");
    tokio::signal::ctrl_c().await?;
    for (mut scheduler, locks) in instances {
        scheduler.shutdown().await?;
        // A job that runs may end within this time.
        locks.shutdown_after(Duration::from_secs(5)).await;
    }
    println!("all instances have ended");
    Ok(())
}

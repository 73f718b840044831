//! A cron expression on three instances: each tick is done once, however late an instance is.
//!
//! ```text
//! cargo run -p mongolock --example cron
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example cron
//! ```
//!
//! The instances are tasks here. In production they are processes on different machines: start the program twice with
//! `MONGODB_URI`. Ctrl-C ends it. Without `MONGODB_URI` the locks are kept in memory.

use std::env;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use cron::Schedule;
use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::task::JoinSet;

/// Every second second.
const SCHEDULE: &str = "*/2 * * * * *";

/// Waits for the ticks of the schedule, and calls the job with the time of each. That is the scheduled time and not the present
/// one, so it is the same on all instances, whatever their clocks say.
async fn run_schedule(schedule: Schedule, locks: LockProvider, instance: u32) {
    for tick in schedule.upcoming(Utc) {
        tokio::time::sleep(until(tick)).await;
        // Beside the others: a job may last longer than the schedule's period.
        tokio::spawn(at_tick(locks.clone(), instance, tick.timestamp()));
    }
}

fn until(tick: DateTime<Utc>) -> Duration {
    (tick - Utc::now()).to_std().unwrap_or_default()
}

/// Returns `None` if another instance has written the report of this tick.
///
/// The success marks the lock as done instead of releasing it. After an error or a crash the lock is free, and an instance
/// that waits meanwhile writes the report.
#[distributed_lock(name = "report:<tick>", once = true, provider = locks)]
async fn write_report(locks: &LockProvider, instance: u32, tick: i64) -> Result<Option<()>, LockError> {
    println!("instance {instance} writes the report of {tick}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(Some(()))
}

async fn at_tick(locks: LockProvider, instance: u32, tick: i64) {
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
    let schedule = Schedule::from_str(SCHEDULE)?;
    let (mut schedules, mut instances) = (JoinSet::new(), Vec::new());
    for number in 1..=3 {
        // A provider of its own is what another process would have.
        let own = locks.to_builder().owner(format!("instance {number}")).build()?;
        schedules.spawn(run_schedule(schedule.clone(), own.clone(), number));
        instances.push(own);
    }
    println!("three instances wait for the schedule {SCHEDULE}; Ctrl-C ends the program");
    tokio::signal::ctrl_c().await?;
    schedules.shutdown().await;
    for locks in instances {
        // A job that runs may end within this time.
        locks.shutdown_after(Duration::from_secs(5)).await;
    }
    println!("all instances have ended");
    Ok(())
}

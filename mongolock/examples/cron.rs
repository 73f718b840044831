//! A cron expression on three instances: each tick is done once, however late an instance is.
//!
//! ```text
//! cargo run -p mongolock --example cron
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example cron
//! ```
//!
//! The instances are jobs of one process here, and processes on different machines in production. A copy in `src/main.rs` needs
//! `cargo add mongolock anyhow chrono croner tokio-cron-scheduler tokio --features tokio/full`.

use std::env;
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use croner::Cron;
use mongolock::{LockError, LockProvider, distributed_lock};
use tokio_cron_scheduler::{Job, JobScheduler};

/// Every second second.
const SCHEDULE: &str = "*/2 * * * * *";

/// Returns `None` if another instance has written the report of this tick.
#[distributed_lock(name = "report", once_at = tick, provider = locks)]
async fn write_report(locks: LockProvider, id: u32, tick: DateTime<Utc>) -> Result<Option<()>, LockError> {
    println!("instance {id} writes the report of {}", tick.timestamp());
    Ok(Some(()))
}

async fn instance(locks: LockProvider, number: u32) {
    // The scheduler does not tell the tick. It is the last time of the expression, and not the present time.
    let schedule = SCHEDULE.parse::<Cron>().expect("the expression is valid");
    let last = schedule.find_previous_occurrence(&Utc::now().trunc_subsecs(0), true);
    let tick = last.expect("the expression has a time before now");
    match write_report(locks, number, tick).await {
        Ok(Some(())) | Err(LockError::ShutDown { .. } | LockError::Lost { .. }) => {}
        Ok(None) => println!("instance {number} finds the report of {}", tick.timestamp()),
        Err(error) => eprintln!("instance {number} has no report of {tick}: {error}"),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    let mut scheduler = JobScheduler::new().await?;
    for number in 1..=3 {
        let locks = locks.clone();
        let job = Job::new_async(SCHEDULE, move |_, _| Box::pin(instance(locks.clone(), number)))?;
        scheduler.add(job).await?;
    }
    scheduler.start().await?;
    println!("three instances wait for the schedule {SCHEDULE}; Ctrl-C ends the program");
    tokio::signal::ctrl_c().await?;
    scheduler.shutdown().await?;
    locks.shutdown_after(Duration::from_secs(5)).await;
    println!("all instances have ended");
    Ok(())
}

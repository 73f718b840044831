//! Several instances of a service have the same scheduled job, and `#[distributed_lock]` makes it run once per tick.
//!
//! ```text
//! cargo run --bin nightly_job
//! cargo run --bin nightly_job -- --ticks 10 --schedule "* * * * * *" --late 400ms
//! cargo run --bin nightly_job -- --kill
//! cargo run --bin nightly_job -- --without-lock
//! ```
//!
//! In each instance a scheduler, apalis, calls the job at each tick of a cron expression. One instance gets the lock
//! and runs the job; for the others the call returns at once (`on_busy = "skip"`). A job is often over before the last
//! instance has called it: clocks differ, and machines are busy. `min_hold` keeps the lock taken until then, and a
//! record of what has been done stands by where time alone proves nothing. `--without-lock` shows the job as it was
//! while there was one instance.
//!
//! A job for every night at three o'clock UTC, schedule `0 0 3 * * *`, would say
//!
//! ```text
//! #[distributed_lock(name = "nightly-report", on_busy = "skip", min_hold = "5m", max_hold = "2h")]
//! ```
//!
//! The program starts a MongoDB (or uses the one of `MONGODB_URI`, in a database of its own), runs three instances of
//! itself, prints a line for each tick, and checks at the end that each tick ran once. It exits with status 1 if one
//! did not.

mod demonstration;
mod instance;
mod journal;
mod options;
mod schedule;
mod store;
mod summary;

use std::process::ExitCode;

use clap::Parser;
use mongolock::distributed_lock;
use mongolock_examples::program;

use crate::instance::Job;
use crate::options::Options;
use crate::schedule::Tick;

/// The whole use of mongolock: runs what is due, unless another instance is at it. The value is what was run; `None`
/// means skipped.
///
/// How long `min_hold` should be: longer than the instances come after one another (by their clocks, and by how busy
/// they are), so that the last one still finds the lock taken; and shorter than the time between two ticks less that
/// same difference, so that the first one at the next tick finds it free. The ticks of a cron expression are at least
/// a second apart, so half a second leaves the same room on both sides.
///
/// What it does not do: an instance that is later than `min_hold` gets the lock. It finds in the record that nothing
/// is due, which is sure, because nobody else writes there while it has the lock. And a tick is left out if the
/// instance that runs it dies, or if a run lasts until the next tick. The next run makes it up, as it runs all that
/// is due.
///
/// `expiry` is how long the job rests after an instance has died in it; `max_hold` ends a run that is stuck, which
/// would else keep the lock for ever.
#[distributed_lock(
    name = "nightly-report",
    on_busy = "skip",
    min_hold = "500ms",
    expiry = "5s",
    max_hold = "1m"
)]
async fn nightly_report(tick: Tick, job: &Job) -> anyhow::Result<Option<Vec<Tick>>> {
    let due = job.due(tick).await?;
    for tick in &due {
        job.build_report(*tick).await?;
    }
    Ok(Some(due))
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run(async {
        match &options.instance {
            Some(instance) => instance::run(instance, &options).await,
            None => {
                program::with_database("nightly_job", async |deployment, database| {
                    demonstration::work(&options, deployment, database).await
                })
                .await
            }
        }
    })
}

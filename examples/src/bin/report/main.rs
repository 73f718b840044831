//! Several processes rebuild the same few reports, and `#[distributed_lock]` keeps them from losing each other's work.
//!
//! ```text
//! cargo run --bin report
//! cargo run --bin report -- --processes 5 --calls 20 --ids 2 --hold 20ms
//! cargo run --bin report -- --without-lock
//! ```
//!
//! A report is one document. Rebuilding it is the classic unsafe sequence: read the document, work for a while, write
//! it back as a whole. Two rebuilds at the same time would both start from the same revision, and one would be lost.
//! `--without-lock` shows exactly that.
//!
//! The program starts a MongoDB (or uses the one of `MONGODB_URI`, in a database of its own), runs further processes
//! of itself, prints a line for each call, and checks at the end that nothing went wrong. It exits with status 1 if
//! something did.

mod event;
mod options;
mod parent;
mod store;
mod summary;
mod tally;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use mongolock::{LockContext, distributed_lock};
use mongolock_examples::program;

use crate::options::Options;
use crate::store::Revision;
use crate::worker::Call;

/// The whole use of mongolock: one rebuild of a report at a time, in all processes together.
#[distributed_lock(name = "report:<id>", expiry = "30s")]
async fn rebuild_report(id: u32, call: &Call<'_>) -> anyhow::Result<()> {
    read_work_write(id, call).await
}

/// Loses updates when two of these run at the same time for one report.
async fn read_work_write(id: u32, call: &Call<'_>) -> anyhow::Result<()> {
    let token = LockContext::current().map(|lock| lock.fencing_token());
    let running = call.begin();

    let mut report = call.store.read(id).await?;
    tokio::time::sleep(call.hold).await;
    report.revisions.push(Revision { of: call.key, token });
    call.store.replace(&report).await?;

    running.end(token);
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run(async {
        match &options.worker {
            Some(worker) => worker::run(worker, &options).await,
            None => {
                program::with_database("report", async |deployment, database| {
                    parent::work(&options, deployment, database).await
                })
                .await
            }
        }
    })
}

//! Several worker processes append messages of a queue to one file for each data type, and `#[distributed_lock]` gives
//! each type to one of them at a time.
//!
//! ```text
//! cargo run --bin queue_workers
//! cargo run --bin queue_workers -- --processes 5 --types 6 --messages 100
//! cargo run --bin queue_workers -- --kill
//! cargo run --bin queue_workers -- --without-lock
//! ```
//!
//! Every process has a worker for every type. A record is appended in four small writes, so two writers at the same
//! time would tear each other's records apart, and both would append the same messages. `--without-lock` shows that.
//! Under the lock `file:<data_type>` a type has one writer in all processes together, while different types are worked
//! at side by side. After a batch of messages a worker lets others have their turn. `--kill` kills a process in the
//! middle of its records: the others wait for its leases to end, cut off its half records, and go on.
//!
//! The program starts a MongoDB (or uses the one of `MONGODB_URI`, in a database of its own), runs further processes
//! of itself, prints a line for each batch, and checks at the end that nothing went wrong. It exits with status 1 if
//! something did.

mod batches;
mod check;
mod fenced_file;
mod gathering;
mod open_file;
mod options;
mod parent;
mod queue;
mod record;
mod summary;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mongolock::{LockContext, distributed_lock};
use mongolock_examples::program;

use crate::open_file::OpenFile;
use crate::options::Options;
use crate::record::Record;
use crate::worker::Turn;

/// Messages that a worker appends before it lets others have their turn.
const BATCH: i64 = 5;

/// The whole use of mongolock: one writer of each file at a time, in all processes together.
#[distributed_lock(name = "file:<data_type>", acquire_timeout = "none")]
async fn append_batch(data_type: &str, turn: &Turn<'_>) -> anyhow::Result<Option<Duration>> {
    read_append_commit(data_type, turn).await
}

/// Appends the next messages to the file of their type, and says how long it took; `None` when there are none left.
///
/// The file, and not the queue, knows which messages it has. To take a message out of the queue first would lose it
/// with a process that is killed, and to mark it there last would append it twice. As it is, a process can be killed
/// after each step:
///
/// - before the commit, the next holder finds the file as it was before this batch, and takes the same messages;
/// - after the commit, the next holder goes on after the committed number, and marks as done what this one had not.
async fn read_append_commit(data_type: &str, turn: &Turn<'_>) -> anyhow::Result<Option<Duration>> {
    let running = turn.running();
    let worker = turn.worker;
    // Without a lock there is no token, and all have the same one.
    let token = LockContext::current().map_or(0, |lock| lock.fencing_token().get());
    let file = OpenFile::open(&worker.directory, data_type, token).await?;
    worker.queue.mark_done(data_type, file.committed()).await?;
    let messages = worker.queue.after(data_type, file.committed(), BATCH).await?;
    let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
        return Ok(None);
    };
    let batch = worker.batches.begin(data_type, worker.process).await?;
    for message in &messages {
        let record = Record {
            sequence: message.sequence,
            token,
            text: message.text.clone(),
        };
        for piece in record.pieces() {
            file.append(piece).await?;
            tokio::time::sleep(worker.pause).await;
        }
    }
    file.commit(last.sequence).await?;
    worker.batches.end(batch).await?;
    let held = running.end(data_type, first.sequence..=last.sequence, token)?;
    Ok(Some(held))
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run(async {
        match &options.worker {
            Some(worker) => worker::run(worker, &options).await,
            None => {
                program::with_database("queue_workers", async |deployment, database| {
                    parent::work(&options, deployment, database).await
                })
                .await
            }
        }
    })
}

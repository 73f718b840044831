//! A worker process: a task for each type, which takes turns with those of the other processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use mongolock::{FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_examples::join;
use mongolock_examples::turns::{self, Hold};
use mongolock_examples::worker::{Worker, ready, send};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Options;
use crate::fenced_file::FencedFile;
use crate::queue::Queue;
use crate::record::Record;

/// Messages that a worker appends before another process gets its turn.
pub(crate) const BATCH: i64 = 5;

/// What a process tells the program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A batch has begun or ended under the lock of its type.
    Turn(turns::Event<String, Batch>),
    /// A batch was given up; the line for the reader.
    GivenUp(String),
}

/// The process that makes a batch, and the numbers of its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) process: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// What the tasks of a process share.
struct Process {
    number: u32,
    queue: Queue,
    directory: PathBuf,
    options: Options,
}

/// Works until the queue is empty.
pub(crate) async fn run(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    let database = worker.database().await?;
    LockProvider::builder(&database)
        .expiry(options.expiry)
        .owner(format!("process {}", worker.number))
        .build()?
        .set_global()?;
    let process = Arc::new(Process {
        number: worker.number,
        queue: Queue::new(&database),
        directory: options.directory.clone().context("a worker needs a directory")?,
        options: options.clone(),
    });

    // No process does all the work before the others have started.
    ready().await?;
    let mut tasks = JoinSet::new();
    for data_type in options.types() {
        tasks.spawn(Arc::clone(&process).take_turns(data_type));
    }
    join(tasks)
        .await
        .with_context(|| format!("process {}", worker.number))?;
    LockProvider::global()?.shutdown().await;
    Ok(())
}

impl Process {
    async fn take_turns(self: Arc<Self>, data_type: &'static str) -> anyhow::Result<()> {
        loop {
            let asked = Instant::now();
            let appended = if self.options.without_lock {
                self.read_append_commit(data_type, asked).await
            } else {
                append_batch(data_type, asked, &self).await
            };
            match appended {
                // The others get their turn, even if they only poll for the lock.
                Ok(Some(held)) => sleep(held).await,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let Some(reason) = loss(&error) else {
                        return Err(error.context(format!("worker for {data_type}")));
                    };
                    // Another process has continued from the last commit: this process takes another turn.
                    let number = self.number;
                    let line = format!("{number:>7}  {data_type:<9}  gives up its batch: {reason}");
                    send(&Event::GivenUp(line))?;
                }
            }
        }
    }

    /// Appends the next messages to the file of their type, and returns how long that took; `None` if none are left.
    ///
    /// The file, and not the queue, knows which messages it has. Taking a message out of the queue first would lose it
    /// with a killed process, and marking it there last would append it twice. This order survives a kill after each
    /// step:
    ///
    /// - before the commit, the next holder finds the file as it was before this batch, and takes the same messages;
    /// - after the commit, the next holder continues after the committed number, and marks the messages as done.
    async fn read_append_commit(&self, data_type: &str, asked: Instant) -> anyhow::Result<Option<Duration>> {
        let (waited, begun) = (asked.elapsed(), Instant::now());
        let token = LockContext::current().map(|lock| lock.fencing_token());
        // Without the lock there is no token, and the file accepts the same one from all writers.
        let write_token = token.unwrap_or(FencingToken::from(0));
        let file = FencedFile::open(&self.directory, data_type, write_token)?;
        self.queue.mark_done(data_type, file.committed()).await?;
        let messages = self.queue.after(data_type, file.committed(), BATCH).await?;
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
            return Ok(None);
        };

        let turn = |end| {
            let (process, first, last) = (self.number, first.sequence, last.sequence);
            Event::Turn(turns::Event {
                resource: data_type.to_owned(),
                body: Batch { process, first, last },
                end,
            })
        };
        send(&turn(None))?;
        for message in &messages {
            for piece in Record::new(message, token).pieces()? {
                file.append(&piece)?;
                sleep(self.options.pause).await;
            }
        }
        file.commit(last.sequence)?;
        // A process that was stopped until here reports no end: the next holder has already begun, and does the rest.
        if let Some(lock) = LockContext::current() {
            lock.ensure_held()?;
        }
        let held = begun.elapsed();
        send(&turn(Some(Hold { token, waited, held })))?;
        Ok(Some(held))
    }
}

/// The whole use of mongolock: across all processes, one writer of each file at a time.
#[distributed_lock(name = "file:<data_type>", acquire_timeout = "none")]
async fn append_batch(
    data_type: &str,
    asked: Instant,
    process: &Process,
) -> anyhow::Result<Option<Duration>> {
    process.read_append_commit(data_type, asked).await
}

/// The reason, if this process has lost its lock, or the file has rejected its token.
fn loss(error: &anyhow::Error) -> Option<&'static str> {
    match error.downcast_ref()? {
        LockError::Lost { .. } => Some("the lock is lost"),
        LockError::Stale { .. } => Some("its fencing token is stale"),
        _ => None,
    }
}

impl Event {
    /// The line for the reader; `None` for the beginning of a batch.
    pub(crate) fn line(&self) -> Option<String> {
        match self {
            Self::Turn(event) => event.end.as_ref().map(|hold| {
                let Batch { process, first, last } = event.body;
                let messages = format!("{first}-{last}");
                format!("{process:>7}  {:<9}  {messages:>8}  {hold}", event.resource)
            }),
            Self::GivenUp(line) => Some(line.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use mongolock_tests::{TestDb, test_db};

    use super::*;

    fn process(db: &TestDb, directory: &Path) -> Process {
        Process {
            number: 1,
            queue: Queue::new(db.database()),
            directory: directory.to_owned(),
            options: Options::parse_from(["queue_workers", "--pause=0"]),
        }
    }

    /// The messages in the file, and those that are marked as done.
    async fn sequences(process: &Process) -> (Vec<u32>, Vec<u32>) {
        let file = std::fs::read_to_string(process.directory.join("orders.log")).unwrap();
        let (records, _) = Record::read_all(&file);
        let messages = process.queue.after("orders", 0, 0).await.unwrap();
        let done = messages.iter().filter(|message| message.done);
        (
            records.iter().map(|record| record.sequence).collect(),
            done.map(|message| message.sequence).collect(),
        )
    }

    /// S4.8: the worker before was killed between its commit and its mark in the queue.
    #[tokio::test(flavor = "multi_thread")]
    async fn committed_messages_are_marked_and_not_appended_again() {
        let (db, directory) = (test_db().await, tempfile::tempdir().unwrap());
        let process = process(&db, directory.path());
        process.queue.fill(&["orders"], 6).await.unwrap();
        let token = FencingToken::from(1);
        let killed = FencedFile::open(directory.path(), "orders", token).unwrap();
        for message in process.queue.after("orders", 0, 2).await.unwrap() {
            let record = Record::new(&message, Some(token));
            killed.append(&record.pieces().unwrap().concat()).unwrap();
        }
        killed.commit(2).unwrap();
        assert_eq!(sequences(&process).await, (vec![1, 2], vec![]));

        let provider = LockProvider::new(db.database());
        let append = async || {
            let appended = provider.scope(append_batch("orders", Instant::now(), &process));
            appended.await.unwrap()
        };
        assert!(append().await.is_some());
        assert_eq!(sequences(&process).await, ((1..=6).collect(), vec![1, 2]));
        assert!(append().await.is_none(), "the queue is empty");
        assert_eq!(sequences(&process).await, ((1..=6).collect(), (1..=6).collect()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stale_worker_takes_another_turn_and_any_other_error_ends_it() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str, token: i64| {
            FencedFile::open(&directory.path().join(name), "orders", FencingToken::from(token))
        };
        let paused = open("", 5).unwrap();
        let next = open("", 6).unwrap();
        assert!(loss(&paused.append(b"stale").unwrap_err()).is_some());
        assert!(loss(&open("", 5).unwrap_err()).is_some());
        next.append(b"valid").unwrap();
        assert!(loss(&open("missing", 5).unwrap_err()).is_none());
        assert!(loss(&LockError::NoProvider.into()).is_none());
    }
}

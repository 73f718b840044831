//! One of the processes: a task for each type, which takes turns with those of the other processes.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use mongolock::{LockError, LockProvider};
use mongolock_examples::output::println;
use mongolock_examples::processes::{self, exit_with_parent};
use tokio::task::JoinSet;

use crate::batches::Batches;
use crate::fenced_file::Stale;
use crate::options::{self, Options};
use crate::queue::Queue;
use crate::summary::{Line, lost_line};
use crate::{append_batch, gathering, read_append_commit};

/// What the tasks of a process share.
pub(crate) struct Worker {
    pub(crate) process: u32,
    pub(crate) queue: Queue,
    pub(crate) batches: Batches,
    pub(crate) directory: PathBuf,
    pub(crate) pause: Duration,
    without_lock: bool,
}

/// One call of the function under the lock, as its body sees it.
pub(crate) struct Turn<'a> {
    pub(crate) worker: &'a Worker,
    asked: Instant,
}

/// A body that runs.
pub(crate) struct Running<'a> {
    turn: &'a Turn<'a>,
    begun: Instant,
}

impl Turn<'_> {
    /// The body has begun: its first act.
    pub(crate) fn running(&self) -> Running<'_> {
        Running {
            turn: self,
            begun: Instant::now(),
        }
    }
}

impl Running<'_> {
    /// Prints the line of the batch, still under the lock, and says how long it took.
    pub(crate) fn end(
        self,
        data_type: &str,
        messages: RangeInclusive<u32>,
        token: i64,
    ) -> anyhow::Result<Duration> {
        let held = self.begun.elapsed();
        let line = Line {
            process: self.turn.worker.process,
            data_type,
            messages,
            token,
            waited: self.begun - self.turn.asked,
            held,
        };
        println(&line.to_string())?;
        Ok(held)
    }
}

/// Works until the queue is empty.
pub(crate) async fn run(worker: &options::Worker, options: &Options) -> anyhow::Result<ExitCode> {
    exit_with_parent();
    let process = worker.number;
    let database = processes::database(&worker.database).await?;
    LockProvider::builder(&database)
        .expiry(options.expiry)
        .owner(format!("process {process}"))
        .build()?
        .set_global()?;

    let shared = Arc::new(Worker {
        process,
        queue: Queue::new(&database),
        batches: Batches::new(&database),
        directory: options
            .directory
            .clone()
            .context("a started process needs the directory")?,
        pause: options.pause,
        without_lock: options.without_lock,
    });
    gathering::join(&database, process).await?;
    gathering::complete(&database, worker.gather).await?;
    let mut tasks = JoinSet::new();
    for data_type in options.types() {
        tasks.spawn(Arc::clone(&shared).take_turns(data_type));
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task panicked")
            .flatten()
            .with_context(|| format!("process {process}"))?;
    }
    LockProvider::global()?.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

impl Worker {
    async fn take_turns(self: Arc<Self>, data_type: &'static str) -> anyhow::Result<()> {
        loop {
            let turn = Turn {
                worker: &self,
                asked: Instant::now(),
            };
            let appended = if self.without_lock {
                read_append_commit(data_type, &turn).await
            } else {
                append_batch(data_type, &turn).await
            };
            match appended {
                // Others get their turn, also where they have to ask for the lock again and again to notice.
                Ok(Some(held)) => tokio::time::sleep(held).await,
                Ok(None) => return Ok(()),
                // Another process has taken over. What this one had not committed is gone: a turn like any other.
                Err(error) if is_late(&error) => println(&lost_line(self.process, data_type, &error))?,
                Err(error) => return Err(error.context(format!("worker for {data_type}"))),
            }
        }
    }
}

/// Whether the lock was lost, or the file has refused a token.
fn is_late(error: &anyhow::Error) -> bool {
    error.is::<Stale>() || matches!(error.downcast_ref(), Some(LockError::Lost { .. }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mongolock_tests::{TestDb, test_db};

    use super::*;
    use crate::open_file::OpenFile;
    use crate::record::{Contents, Record};

    fn worker(db: &TestDb, directory: &Path) -> Worker {
        Worker {
            process: 1,
            queue: Queue::new(db.database()),
            batches: Batches::new(db.database()),
            directory: directory.to_owned(),
            pause: Duration::ZERO,
            without_lock: false,
        }
    }

    /// What is in the file, and what is marked as done.
    async fn sequences(worker: &Worker) -> (Vec<u32>, Vec<u32>) {
        let file = std::fs::read_to_string(worker.directory.join("orders.log")).unwrap();
        let written = Contents::read(&file)
            .records
            .iter()
            .map(|it| it.sequence)
            .collect();
        let messages = worker.queue.after("orders", 0, 0).await.unwrap();
        let done = messages
            .iter()
            .filter(|it| it.done)
            .map(|it| it.sequence)
            .collect();
        (written, done)
    }

    /// S4.8: the worker before was killed between its commit and its mark in the queue.
    #[tokio::test]
    async fn what_was_committed_is_marked_and_not_appended_again() {
        let (db, directory) = (test_db().await, tempfile::tempdir().unwrap());
        let worker = worker(&db, directory.path());
        worker.queue.fill(&["orders"], 6).await.unwrap();
        let killed = OpenFile::open(directory.path(), "orders", 1).await.unwrap();
        for message in worker.queue.after("orders", 0, 2).await.unwrap() {
            let record = Record {
                sequence: message.sequence,
                token: 1,
                text: message.text,
            };
            killed.append(record.pieces().concat()).await.unwrap();
        }
        killed.commit(2).await.unwrap();
        assert_eq!(sequences(&worker).await, (vec![1, 2], vec![]));

        let provider = LockProvider::new(db.database());
        let turn = Turn {
            worker: &worker,
            asked: Instant::now(),
        };
        let held = provider.scope(append_batch("orders", &turn)).await.unwrap();
        assert!(held.is_some());
        assert_eq!(sequences(&worker).await, (vec![1, 2, 3, 4, 5, 6], vec![1, 2]));
        let held = provider.scope(append_batch("orders", &turn)).await.unwrap();
        assert!(held.is_none(), "the queue is empty");
        assert_eq!(sequences(&worker).await, ((1..=6).collect(), (1..=6).collect()));
    }

    #[tokio::test]
    async fn a_late_worker_takes_another_turn_and_any_other_error_ends_it() {
        let directory = tempfile::tempdir().unwrap();
        let paused = OpenFile::open(directory.path(), "orders", 5).await.unwrap();
        let next = OpenFile::open(directory.path(), "orders", 6).await.unwrap();
        assert!(is_late(&paused.append(b"late".to_vec()).await.unwrap_err()));
        assert!(is_late(
            &OpenFile::open(directory.path(), "orders", 5).await.unwrap_err()
        ));
        next.append(b"in time".to_vec()).await.unwrap();

        let missing = directory.path().join("missing");
        assert!(!is_late(
            &OpenFile::open(&missing, "orders", 5).await.unwrap_err()
        ));
        assert!(!is_late(&LockError::NoProvider.into()));
    }
}

//! Worker processes append the messages of a queue to one file for each data type, and `#[distributed_lock]` gives each
//! type to one of them at a time.
//!
//! **Scene** (`cargo run --bin queue_workers`). A record is appended in four small writes. Process 1 is killed in the middle of a record of `orders`, and
//! process 2 is stopped in one of `invoices` until another process has written that file.
//!
//! **What it proves.** A type has one writer across all processes, and different types are written in parallel. When a
//! lease has ended, another process removes the incomplete record and continues. What the stopped process writes later is
//! stale, and [the file](mongolock_examples::fenced_file) rejects it.
//!
//! **How it is checked.** Every message is in its file once, complete and in order, under tokens that do not fall; no two
//! batches of a type overlap; several processes have written each type. `--without-lock` fails.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock::{FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::fenced_file::FencedFile;
use mongolock_examples::turns::{self, Step, Turns, note, turn};
use mongolock_examples::worker::{Signal, Worker, go, set_global};
use mongolock_examples::{documents, join, print, summary::Summary};
use tokio::time::sleep;

const TYPES: [&str; 3] = ["orders", "invoices", "payments"];
const PROCESSES: u32 = 4;
/// Messages of each type, and those that a worker appends before another process gets its turn.
const MESSAGES: i32 = 40;
const BATCH: i64 = 5;

/// Across all processes, one writer of each file at a time. Returns whether there was a message.
///
/// With `on_lost = "continue"` a stopped process continues after the loss, to show that its file rejects what it writes.
#[distributed_lock(name = "file:<data_type>", acquire_timeout = "none", on_lost = "continue")]
async fn append_batch(data_type: &'static str, called: Instant, process: &Process) -> anyhow::Result<bool> {
    process.read_append_commit(data_type, called).await
}

impl Process {
    /// The file, and not the queue, knows which messages it has. Taking a message out of the queue first would lose it with
    /// a killed process, and marking it there last would append it twice. The next holder takes the same messages if this
    /// one is killed before its commit, and the next ones if it is killed after it.
    async fn read_append_commit(&self, data_type: &'static str, called: Instant) -> anyhow::Result<bool> {
        let token = LockContext::current().map(|lock| lock.fencing_token());
        // Without the lock there is no token, and the file accepts the same one from all writers.
        let write_token = token.unwrap_or(FencingToken::from(0));
        let (file, committed) = FencedFile::open(&self.options.directory, data_type, write_token)?;
        let next = doc! { "data_type": data_type, "sequence": { "$gt": committed } };
        let next = self.queue.find(next).sort(doc! { "sequence": 1 }).limit(BATCH);
        let messages = documents(next.await?).await?;
        let messages = messages.iter().map(|message| message.get_i32("sequence"));
        let messages: Vec<i32> = messages.collect::<Result<_, _>>()?;
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
            return Ok(false);
        };
        let batch = (self.number, *first, *last);
        let append = async {
            for message in &messages {
                // One write would do: this is a program that writes carelessly.
                let record = serde_json::to_string(&(message, token, self.number))? + "\n";
                for piece in record.as_bytes().chunks(record.len().div_ceil(4)) {
                    file.append(piece)?;
                    sleep(Duration::from_millis(5)).await;
                    // Process 1 or 2, which is killed or stopped here.
                    if !self.go.has_come() {
                        note((data_type, batch), "is in the middle of a record")?;
                        self.go.wait().await;
                    }
                }
            }
            file.commit(*last)
        };
        turn((data_type, batch), called, append).await?;
        Ok(true)
    }

    /// The worker of a type.
    async fn take_turns(self: Arc<Self>, data_type: &'static str) -> anyhow::Result<()> {
        loop {
            let called = Instant::now();
            let appended = if self.options.without_lock {
                self.read_append_commit(data_type, called).await
            } else {
                append_batch(data_type, called, &self).await
            };
            match appended {
                // The others get their turn, even if they only poll for the lock.
                Ok(true) => sleep(Duration::from_millis(100)).await,
                Ok(false) => return Ok(()),
                // Another process has continued from the last commit: this process takes another turn.
                Err(error) if matches!(error.downcast_ref(), Some(LockError::Stale { .. })) => {
                    note((data_type, (self.number, 0, 0)), STALE)?;
                }
                Err(error) => return Err(error.context(format!("worker for {data_type}"))),
            }
        }
    }
}

/// A worker process: works until the queue is empty. One in trouble has a worker for a single type.
async fn work(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    let (go, number, database) = (go(), worker.number, worker.database().await?);
    // The others wait as long for a process that was killed or stopped.
    let locks = LockProvider::builder(&database).expiry(Duration::from_secs(2));
    let locks = set_global(number, locks)?;
    let types = match number {
        1 | 2 if !options.without_lock => &TYPES[number as usize - 1..][..1],
        _ => &TYPES[..],
    };
    if types.len() > 1 {
        note(("", (number, 0, 0)), "is ready")?;
        go.wait().await;
    }
    let (queue, options) = (database.collection("messages"), options.clone());
    let process = Arc::new(Process {
        number,
        go,
        queue,
        options,
    });
    let tasks = types.iter().map(|own| Arc::clone(&process).take_turns(own));
    join(tasks).await.with_context(|| format!("process {number}"))?;
    locks.shutdown().await;
    Ok(())
}

async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let directory = tempfile::tempdir()?;
    let queue = stage.database().collection::<Document>("messages");
    let message = |number| TYPES.map(|own| doc! { "data_type": own, "sequence": number });
    queue.insert_many((1..=MESSAGES).flat_map(message)).await?;
    print(HEADING)?;
    let place = directory.path().to_string_lossy();
    let mut workers = stage.start_workers(1..=PROCESSES, &["--directory", &place])?;
    let mut waiting = 0;
    while waiting < PROCESSES {
        let event: Event = workers.next().await?.context("the processes have ended")?;
        waiting += u32::from(matches!(event.step, Step::Note(_)));
    }
    let mut stopped = None;
    if !options.without_lock {
        workers.kill(1)?;
        stopped = Some(workers.pause(2)?);
        print("         process 1 is killed, and process 2 is stopped")?;
    }
    workers.go()?;
    let (mut turns, mut rejected) = (Turns::default(), 0);
    while let Some(event) = workers.next::<Event>().await? {
        turns.add(&event);
        let (process, first, last) = event.body;
        let what = match event.step {
            Step::Begun => continue,
            Step::Ended(hold) => format!("{:>8}  {hold}", format!("{first}-{last}")),
            Step::Note(text) => text,
        };
        print(format!("{process:>7}  {:<9}  {what}", event.resource))?;
        rejected += usize::from(what == STALE);
        // Process 2 continues when another one has written its file.
        stopped = stopped.filter(|_| event.resource != TYPES[1]);
    }
    let mut summary = Summary::default();
    for data_type in TYPES {
        let file = fs::read(directory.path().join(data_type).with_extension("log"))?;
        // A damaged file need not be text.
        let problems = problems(data_type, &String::from_utf8_lossy(&file), &turns);
        summary.problems(data_type, PASSED, &problems);
    }
    let parallel = turns.in_parallel();
    summary.check("batches in parallel", parallel, parallel > 0);
    if !options.without_lock {
        summary.check("stale writes rejected", format!("{rejected} of 1"), rejected == 1);
    }
    summary.fail(workers.failures().await?);
    Ok(summary)
}

/// The problems that there may be with a type, and whether they are there.
fn problems(own: &str, file: &str, turns: &Turns<String, Batch>) -> [(&'static str, bool); 6] {
    let lines = || file.split_inclusive('\n');
    // A line without its end is incomplete, even if it is JSON.
    let record = |line: &str| serde_json::from_str::<Record>(line.strip_suffix('\n')?).ok();
    let records: Vec<Record> = lines().filter_map(record).collect();
    let tokens = || records.iter().map(|record| record.1);
    let batches = turns.ended().iter().filter(|(data_type, _)| data_type == own);
    let processes: BTreeSet<u32> = batches.map(|(_, batch)| batch.0).collect();
    let overlaps = turns.overlaps().any(|(data_type, _)| data_type == own);
    let is_in_order = records.iter().map(|record| record.0).eq(1..=MESSAGES);
    [
        ("damaged", lines().count() > records.len()),
        ("not each once in order", !is_in_order),
        // The least one is none if there is no record, or one has no token.
        ("without tokens", tokens().min().flatten().is_none()),
        ("falling tokens", !tokens().is_sorted()),
        ("overlaps", overlaps),
        ("only one process", processes.len() < 2),
    ]
}

const HEADING: &str = "\
To be proved: no message is lost, torn or repeated, although process 1 is killed in the middle of a record, and process 2
is stopped there until its lease has ended and another process has written its file.

process  type       messages     fencing token      waited        held";
const PASSED: &str = "all messages once and in order, by several processes";
const STALE: &str = "gives up its batch: its fencing token is stale";

/// A message in a file, a line of JSON: its number, the fencing token under which it was appended, and the process.
type Record = (i32, Option<FencingToken>, u32);

/// The process that makes a batch, and the numbers of its first and its last message.
type Batch = (u32, i32, i32);
type Event = turns::Event<String, Batch>;

struct Process {
    number: u32,
    go: Signal,
    queue: Collection<Document>,
    options: Options,
}

/// Worker processes append the messages of a queue to one file for each data type, under a distributed lock for each type. One
/// of them is killed and one is stopped. The program checks that every message is in its file once and complete.
#[derive(Debug, Clone, Parser)]
#[command(name = "queue_workers", after_help = AFTER_HELP)]
struct Options {
    /// Append without the lock, to see what it prevents; fails because the files are damaged
    #[arg(long)]
    without_lock: bool,
    #[arg(long, hide = true, default_value = ".")]
    directory: PathBuf,
    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(worker) => demo::run(work(worker, &options)),
        None => demo::demonstrate("queue_workers", async |stage| demonstrate(&options, stage).await),
    }
}

#[cfg(test)]
mod tests {
    use mongolock_examples::turns::Hold;

    use super::*;

    #[test]
    fn each_problem_is_found() {
        let record = |n: i32, token: i32| format!("[{n},{token},3]\n");
        let right: Vec<String> = (1..=MESSAGES).map(|n| record(n, n / 5)).collect();
        let found = |file: &str, batches: &[i32]| {
            let mut turns = Turns::default();
            for number in batches {
                let (resource, body) = ("orders".to_owned(), (number.unsigned_abs(), 1, 5));
                let ended = || Step::Ended(Hold::default());
                let step = if *number > 0 { Step::Begun } else { ended() };
                turns.add(&Event { resource, body, step });
            }
            let mut summary = Summary::default();
            summary.problems("orders", "", &problems("orders", file, &turns));
            summary.failures().concat()
        };
        let in_turn = [3, -3, 4, -4];
        let with = |at: usize, text: &str| {
            let mut lines = right.clone();
            text.clone_into(&mut lines[at]);
            lines.concat()
        };
        let whole = right.concat();
        assert_eq!(found(&whole, &in_turn), "");
        for (file, problem) in [
            (with(7, ""), "not each once in order"),
            (with(7, &record(7, 1)), "not each once in order"),
            (with(7, &right[7].repeat(2)), "not each once in order"),
            (whole.clone() + "[41,", "damaged"),
            (whole.clone() + "[41,9,3]", "damaged"),
            (with(7, "[8,null,3]\n"), "without tokens, falling tokens"),
            (with(39, &record(40, 1)), "falling tokens"),
        ] {
            assert_eq!(found(&file, &in_turn), format!("orders ({problem})"), "{file}");
        }
        assert_eq!(found(&whole, &[3, 4, -3, -4]), "orders (overlaps)");
        assert_eq!(found(&whole, &[3, -3, 3, -3]), "orders (only one process)");
    }
}

//! A writer is stopped while it holds a lock. Another writer gets the lock and writes. The first writer continues, and
//! its stale write destroys the update of the other one, unless the write is fenced or its commit is guarded.
//!
//! ```text
//! cargo run --bin paused_writer
//! cargo run --bin paused_writer -- --runs 50
//! cargo run --bin paused_writer -- --expiry 3s
//! ```
//!
//! A lock is a lease. A process that is stopped (by a debugger, a swapping machine, a paused virtual machine) does not
//! see its lease expire, and what it writes when it continues is stale. No lock service can prevent that by itself: the
//! data has to reject the write. The program shows it with a real process, which it stops with SIGSTOP between reading a
//! balance and writing it back, for three ways to write:
//!
//! - plain: `replace_one` of the driver,
//! - fenced: `replace_one` of a `FencedCollection`, which sends the fencing token of the lock,
//! - guarded commit: a transaction that is committed with `LockContext::commit`.
//!
//! The file `ways.rs` has them side by side. The checks pass if every plain write has destroyed the other update (that is
//! what the program shows), and every fenced and guarded one was rejected.

mod outcome;
mod scene;
mod ways;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Parser, value_parser};
use mongodb::bson::doc;
use mongodb::{Collection, Database};
use mongolock::{FencingToken, IndexState, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::duration::{parse_expiry, show};
use mongolock_examples::print;
use mongolock_examples::summary::Summary;
use mongolock_examples::worker::{Worker, go, killed_with_parent, send};
use serde::{Deserialize, Serialize};

use crate::scene::Timeline;
use crate::ways::Way;

/// The balance before the deposits, and the amounts that the writers add.
const OPENING: i64 = 100;
const FIRST_DEPOSIT: i64 = 10;
const SECOND_DEPOSIT: i64 = 50;

/// The longest lease: a user waits for its end.
const LONGEST_EXPIRY: Duration = Duration::from_secs(60);

/// How much longer than the lease writer 2 waits for the lock.
const SLACK: Duration = Duration::from_secs(60);

/// A writer is stopped while it holds a lock; another one gets the lock and writes; the first one continues with a stale
/// write. The program shows this with a real process, for three ways to write.
#[derive(Debug, Parser)]
#[command(name = "paused_writer", after_help = AFTER_HELP)]
struct Options {
    /// How often to play the scene; more than once prints a line for each run instead of a timeline
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// The lease of the stopped writer, for which the other writer waits
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = expiry)]
    expiry: Duration,

    /// How writer 1 writes.
    #[arg(long, hide = true, requires = "worker")]
    way: Option<Way>,

    #[command(flatten)]
    worker: Option<Worker>,
}

fn expiry(text: &str) -> Result<Duration, String> {
    let expiry = parse_expiry(text)?;
    let is_short = expiry <= LONGEST_EXPIRY;
    is_short
        .then_some(expiry)
        .ok_or_else(|| "write at most 60s".to_owned())
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(worker) => demo::run(writer_1(worker, &options)),
        None => demo::demonstrate("paused_writer", async |stage| demonstrate(&options, stage).await),
    }
}

/// Plays the scene for each way to write, as often as the options say.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    // Writer 2 is this process. It is not stopped, and its lease has the usual length.
    let provider = LockProvider::builder(stage.database())
        .acquire_timeout(options.expiry + SLACK)
        .owner("writer 2")
        .build()?;
    // A transaction cannot begin on a collection while one of its indexes is built.
    let index = provider.admin().index_state().await;
    ensure!(
        index == IndexState::Ready,
        "the index of the locks is not ready: {index:?}"
    );
    provider.clone().set_global()?;

    print(heading(options))?;
    let mut outcomes = Vec::new();
    for run in 1..=options.runs {
        let mut columns = vec![format!("{run:>5}")];
        for way in Way::ALL {
            let timeline = Timeline::begin(way, options.runs == 1)?;
            let outcome = scene::play(way, stage, &timeline).await?;
            columns.push(format!("{:<14}", outcome.short()));
            outcomes.push(outcome);
        }
        if options.runs > 1 {
            print(columns.join("  ").trim_end())?;
        }
    }
    provider.shutdown().await;

    let summary = outcome::judge(&outcomes);
    if summary.failures().is_empty() {
        print("\nThe lock alone does not stop a stale write; the fence and the guarded commit do.")?;
    }
    Ok(summary)
}

/// What writer 1 tells the program.
#[derive(Debug, Serialize, Deserialize)]
enum Event {
    /// It holds the lock and has read the balance.
    Read {
        token: FencingToken,
        balance: i64,
    },
    Written,
    /// Its write was rejected, for this reason.
    Rejected(String),
}

/// The worker process: makes its deposit, and is stopped from outside while it holds the lock.
async fn writer_1(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    killed_with_parent()?;
    let go = go();
    let way = options.way.context("a worker needs a way to write")?;
    let database = worker.database().await?;
    let accounts = accounts(&database);
    let provider = LockProvider::builder(&database)
        .expiry(options.expiry)
        .owner("writer 1")
        .build()?;

    let work = async |token, balance| {
        send(&Event::Read { token, balance })?;
        go.wait().await
    };
    let deposited = provider.scope(deposit(FIRST_DEPOSIT, way, &accounts, work));
    let event = match deposited.await {
        Ok(()) => Event::Written,
        Err(error) => match error
            .downcast_ref::<LockError>()
            .and_then(|error| way.rejection(error))
        {
            Some(reason) => Event::Rejected(reason),
            None => bail!(error.context("writer 1")),
        },
    };
    send(&event)?;
    provider.shutdown().await;
    Ok(())
}

/// What both writers do: read the balance, work for a while, and write it back.
///
/// With `on_lost = "continue"` the body continues after the loss of the lock, to show what happens to its stale write. By
/// default the body is dropped at its next await point. That helps unless the pause comes even later, after the write
/// was sent.
#[distributed_lock(name = "account:<way>", on_lost = "continue")]
async fn deposit(
    amount: i64,
    way: Way,
    accounts: &Collection<Account>,
    work: impl AsyncFnOnce(FencingToken, i64) -> anyhow::Result<()>,
    #[lock] lock: LockContext,
) -> anyhow::Result<()> {
    let mut account = read(accounts, way).await?;
    work(lock.fencing_token(), account.balance).await?;
    account.balance += amount;
    way.write(accounts, account, lock).await?;
    Ok(())
}

/// The document that both writers read and write as a whole; each way to write has its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Account {
    #[serde(rename = "_id")]
    id: String,
    balance: i64,
}

fn accounts(database: &Database) -> Collection<Account> {
    database.collection("accounts")
}

async fn read(accounts: &Collection<Account>, way: Way) -> anyhow::Result<Account> {
    let account = accounts.find_one(doc! { "_id": way.to_string() }).await;
    account
        .context("cannot read the account")?
        .context("the account does not exist")
}

fn heading(options: &Options) -> String {
    let scene = format!(
        "Two writers add {FIRST_DEPOSIT} and {SECOND_DEPOSIT} to a balance of {OPENING}: read, work, write back, \
         under the lock `account:<way>`.\n\
         Writer 1 is stopped during its work for longer than its lease of {}.",
        show(options.expiry)
    );
    match options.runs {
        1 => scene,
        _ => format!("{scene}\n\n  run  plain           fenced          guarded commit"),
    }
}

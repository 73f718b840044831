//! A writer is stopped while it holds a lock. Another writer gets the lock and writes. The first writer continues, and
//! its stale write destroys the update of the other one, unless the write is fenced or its commit is guarded.
//!
//! ```text
//! cargo run --bin paused_writer
//! cargo run --bin paused_writer -- --expiry 3000
//! ```
//!
//! **Scene.** A lock is a lease. A process that is stopped (by a debugger, a swapping machine, a paused virtual machine) does
//! not see its lease expire, and what it writes when it continues is stale. The program stops a real process with SIGSTOP
//! between reading a balance and writing it back, for three ways to write, which `ways.rs` has side by side:
//!
//! - plain: `replace_one` of the driver,
//! - fenced: `replace_one` of a `FencedCollection`, which sends the fencing token of the lock,
//! - guarded commit: a transaction that is committed with `LockContext::commit`.
//!
//! **What it proves.** No lock service can prevent a stale write by itself: the data has to reject it.
//!
//! **How it is checked.** The plain write has destroyed the other update (that is what the program shows), and the fenced and
//! the guarded one were rejected, and have changed nothing.

mod ways;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Parser, value_parser};
use mongodb::bson::doc;
use mongodb::{Collection, Database};
use mongolock::{FencingToken, IndexState, LockContext, LockProvider, distributed_lock};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::worker::{Worker, go, send};
use mongolock_examples::{print, show, summary::Summary};
use serde::{Deserialize, Serialize};

use crate::ways::Way;

/// The balance before the deposits, and the amounts that the writers add.
const OPENING: i64 = 100;
const FIRST_DEPOSIT: i64 = 10;
const SECOND_DEPOSIT: i64 = 50;

/// Writer 2 waits longer than the longest lease.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(120);

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

/// The worker process: makes its deposit, and is stopped from outside while it holds the lock.
async fn writer_1(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    let go = go();
    let way = options.way.context("a worker needs a way to write")?;
    let database = worker.database().await?;
    let accounts = accounts(&database);
    let provider = LockProvider::builder(&database)
        .expiry(Duration::from_millis(options.expiry))
        .owner("writer 1")
        .build()?;

    let work = async |token, balance| {
        send(&Event::Read(token, balance))?;
        go.wait().await;
        Ok(())
    };
    let deposited = provider.scope(deposit(FIRST_DEPOSIT, way, &accounts, work));
    let event = match deposited.await {
        Ok(()) => Event::Written,
        Err(error) => match way.rejection(&error) {
            Some(reason) => Event::Rejected(reason),
            None => bail!(error.context("writer 1")),
        },
    };
    send(&event)?;
    provider.shutdown().await;
    Ok(())
}

/// Plays the scene for each way to write.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    // Writer 2 is this process. It is not stopped, and its lease has the usual length.
    let provider = LockProvider::builder(stage.database())
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .owner("writer 2")
        .build()?;
    // A transaction cannot begin on a collection while one of its indexes is built.
    let index = provider.admin().index_state().await;
    let is_ready = index == IndexState::Ready;
    ensure!(is_ready, "the index of the locks is not ready: {index:?}");
    provider.clone().set_global()?;

    print(format!(
        "To be proved: a lock alone cannot stop the late write of a paused holder; a fenced write and a guarded commit do.\n\n\
         Two writers add {FIRST_DEPOSIT} and {SECOND_DEPOSIT} to a balance of {OPENING}: read, work, write back, under the \
         lock `account:<way>`.\nWriter 1 is stopped during its work for longer than its lease of {} ms.",
        options.expiry
    ))?;
    let mut summary = Summary::default();
    for way in Way::ALL {
        print(format!("\n{}: {}", way.title(), way.method()))?;
        let (balance, rejection) = play(way, stage).await?;
        check(way, balance, rejection.is_some(), &mut summary);
    }
    provider.shutdown().await;
    if summary.failures().is_empty() {
        print("\nThe lock alone does not stop a stale write; the fence and the guarded commit do.")?;
    }
    Ok(summary)
}

/// The scene: writer 1 is stopped at its work, writer 2 gets the lock, and writer 1 continues. Returns the balance, and why
/// the stale write was rejected. If this future is dropped, the process of writer 1 ends with it.
async fn play(way: Way, stage: &Stage) -> anyhow::Result<(i64, Option<String>)> {
    let begun = Instant::now();
    let tell = |what: &str| print(format!("{:>9}  {what}", show(begun.elapsed())));
    let accounts = accounts(stage.database());
    let (id, balance) = (way.to_string(), OPENING);
    let opened = accounts.insert_one(Account { id, balance }).await;
    opened.context("cannot open the account")?;

    let mut writer_1 = stage.start_workers(1..=1, &["--way", &way.to_string()])?;
    let Some(Event::Read(token, balance)) = writer_1.next().await? else {
        bail!("writer 1 did not read the balance");
    };
    let acquires = format!("acquires the lock, token {token}, and reads the balance: {balance}");
    tell(&format!("writer 1 {acquires}"))?;
    let paused = writer_1.pause(1)?;
    tell("writer 1 is stopped; its lease is not renewed any more")?;

    let work = async |token, balance| {
        let what = format!("writer 2 acquires the lock, token {token}, and reads the balance: {balance}");
        tell(&format!("the lease has expired: {what}"))
    };
    let deposited = deposit(SECOND_DEPOSIT, way, &accounts, work).await;
    deposited.context("writer 2")?;
    let sum = balance + SECOND_DEPOSIT;
    tell(&format!("writer 2 writes {sum} and releases the lock"))?;

    writer_1.go()?;
    drop(paused);
    let sum = balance + FIRST_DEPOSIT;
    tell(&format!("writer 1 continues, and writes {sum}"))?;
    let rejection = match writer_1.next().await? {
        Some(Event::Written) => None,
        Some(Event::Rejected(reason)) => Some(reason),
        other => bail!("writer 1 did not write: {other:?}"),
    };
    if let Some(failure) = writer_1.failures().await?.pop() {
        bail!("writer 1 failed: {failure}");
    }
    let balance = read(&accounts, way).await?.balance;
    let gone = format!("the {SECOND_DEPOSIT} of writer 2 are gone");
    match &rejection {
        Some(reason) => tell(&format!("REJECTED: the balance is {balance}\n{:>11}{reason}", ""))?,
        None => tell(&format!("LOST UPDATE: the balance is {balance}, {gone}"))?,
    }
    Ok((balance, rejection))
}

/// Nothing rejects a plain write, and the two other ways must reject a stale one.
fn check(way: Way, balance: i64, is_rejected: bool, summary: &mut Summary) {
    let (accepted, rejected) = (OPENING + FIRST_DEPOSIT, OPENING + SECOND_DEPOSIT);
    let (passed, expected) = match way {
        Way::Plain => ("accepted: the update of writer 2 is lost", (accepted, false)),
        _ => ("rejected: the update of writer 2 is kept", (rejected, true)),
    };
    let found = i32::from((balance, is_rejected) == expected);
    let row = format!("{found} of 1 stale writes were {passed}");
    summary.check(way.title(), row, found == 1);
}

/// What writer 1 tells the program.
#[derive(Debug, Serialize, Deserialize)]
enum Event {
    /// It holds the lock with this token, and has read this balance.
    Read(FencingToken, i64),
    Written,
    /// Its write was rejected, for this reason.
    Rejected(String),
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

/// A writer is stopped while it holds a lock; another one gets the lock and writes; the first one continues with a stale
/// write. The program shows this with a real process, for three ways to write.
#[derive(Debug, Parser)]
#[command(name = "paused_writer", after_help = AFTER_HELP)]
struct Options {
    /// The lease of the stopped writer in milliseconds, for which the other writer waits
    #[arg(long, value_name = "NUMBER", default_value_t = 300, value_parser = value_parser!(u64).range(100..=60_000))]
    expiry: u64,

    /// How writer 1 writes.
    #[arg(long, hide = true, requires = "worker")]
    way: Option<Way>,

    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(worker) => demo::run(writer_1(worker, &options)),
        None => demo::demonstrate("paused_writer", async |stage| demonstrate(&options, stage).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_write_has_to_destroy_and_the_others_have_to_be_rejected() {
        for (way, balance, is_rejected, passes) in [
            (Way::Plain, 110, false, true),
            (Way::Plain, 150, false, false),
            (Way::Plain, 150, true, false),
            (Way::Fenced, 150, true, true),
            (Way::Fenced, 110, false, false),
            (Way::Fenced, 110, true, false),
            (Way::Guarded, 150, true, true),
            (Way::Guarded, 160, false, false),
            (Way::Guarded, 100, true, false),
        ] {
            let mut summary = Summary::default();
            check(way, balance, is_rejected, &mut summary);
            let has_passed = summary.failures().is_empty();
            assert_eq!(has_passed, passes, "{way}, {balance}: {summary}");
        }
    }
}

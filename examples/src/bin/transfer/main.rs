//! Several processes transfer money between the same accounts, and a holder that has lost its lock commits nothing.
//!
//! ```text
//! cargo run --bin transfer
//! cargo run --bin transfer -- --processes 8 --transfers 20 --accounts 5
//! cargo run --bin transfer -- --without-guard
//! ```
//!
//! A transfer writes both balances and an entry of the journal in one transaction. Between two accounts no more than a
//! limit may be moved. The entries before the transaction decide that, and an approval by another system takes its time.
//! Both happen under the locks of both accounts; [`transfer`](transfer::transfer) is the code to copy.
//!
//! One of the processes is stopped with SIGSTOP after its decision, until its lease has expired and the others have moved
//! money between the two accounts. When it continues, `LockContext::commit` rejects its transaction: by the clock of the
//! process, or, if that clock has stood still (in a paused virtual machine), by the documents of the locks, which are part
//! of the transaction. With `--without-guard` the driver commits, and more is moved than the limit allows.
//!
//! The program starts further processes of itself, prints a line for each transfer, and checks the books at the end.

mod bank;
mod check;
mod order;
mod transfer;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, value_parser};
use mongolock::{FencingToken, LockError, LockProvider};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::duration::{parse, show};
use mongolock_examples::print;
use mongolock_examples::summary::Summary;
use mongolock_examples::worker::{Worker, exit_with_parent, go, killed_with_parent};

use crate::bank::{Approval, Bank, LIMIT, Receipt};
use crate::order::{Order, OrderId};
use crate::transfer::{Outcome, transfer};

/// The lease of each process: the others wait for it while its holder is stopped.
const EXPIRY: Duration = Duration::from_secs(3);

/// A process may have to wait for all others; a longer wait is a defect.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The transfer of process 1, which is stopped in the middle. It uses the whole limit, so that any other transfer between
/// the two accounts invalidates its decision.
const STOPPED: Order = Order {
    id: OrderId {
        process: 1,
        number: 1,
    },
    from: 1,
    to: 2,
    amount: LIMIT,
};

/// Several processes transfer money between the same accounts under distributed locks. One of them is stopped in the
/// middle until others hold its locks; its commit is rejected. The program checks that the books are right. Transactions
/// need a replica set or a sharded cluster.
#[derive(Debug, Parser)]
#[command(name = "transfer", after_help = AFTER_HELP)]
struct Options {
    /// Processes to start, including the one that is stopped
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = value_parser!(u32).range(2..=64))]
    processes: u32,

    /// Transfers that each of the other processes makes, one after the other
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = value_parser!(u32).range(1..=10_000))]
    transfers: u32,

    /// Accounts of the transfers
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(2..=20))]
    accounts: u32,

    /// How long a transfer waits for its approval, under the lock
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = parse)]
    approval: Duration,

    /// Commit without the guard, to see what it prevents; fails because the limit is broken
    #[arg(long)]
    without_guard: bool,

    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.worker {
        Some(worker) => demo::run(make_transfers(worker, &options)),
        None => demo::demonstrate("transfer", async |stage| demonstrate(&options, stage).await),
    }
}

/// Starts process 1, stops it in the middle of its transfer, lets the others make theirs, and checks the books.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let bank = Bank::new(stage.database(), Approval::Takes(options.approval), true);
    bank.open(stage.database(), options.accounts).await?;
    print(heading(options))?;

    let mut first = stage.start_workers(1..=1)?;
    let waits = first.next_line().await?;
    print(waits.context("process 1 has ended before its transfer")?)?;
    let paused = first.pause()?;
    print("Process 1 is stopped. Its lease expires while the others work.")?;

    let mut others = stage.start_workers(2..=options.processes)?;
    while let Some(line) = others.next_line().await? {
        print(line)?;
    }
    let mut failed = others.failures().await?;

    first.go()?;
    drop(paused);
    print("Process 1 continues.")?;
    while let Some(line) = first.next_line().await? {
        print(line)?;
    }
    failed.extend(first.failures().await?);

    let mut summary = check::check(&bank.books().await?, options.accounts);
    summary.fail(failed);
    Ok(summary)
}

/// A worker process: makes its transfers one after the other, and prints a line for each.
async fn make_transfers(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    let process = worker.number;
    let database = worker.database().await?;
    let provider = LockProvider::builder(&database)
        .expiry(EXPIRY)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .owner(format!("process {process}"))
        .build()?;
    provider.clone().set_global()?;

    let is_guarded = !options.without_guard;
    if process == STOPPED.id.process {
        killed_with_parent()?;
        let bank = Bank::new(&database, Approval::ComesWith(go()), is_guarded);
        make(&STOPPED, &bank).await?;
    } else {
        exit_with_parent();
        let bank = Bank::new(&database, Approval::Takes(options.approval), is_guarded);
        for number in 1..=options.transfers {
            let order = Order::numbered(OrderId { process, number }, options.accounts);
            make(&order, &bank).await?;
        }
    }
    provider.shutdown().await;
    Ok(())
}

/// Makes one transfer; tries again if its locks were lost, because nothing was booked then.
async fn make(order: &Order, bank: &Bank) -> anyhow::Result<()> {
    let Order { from, to, amount, .. } = order;
    loop {
        let (token, text) = match transfer(order, bank).await {
            Err(LockError::Lost { token, .. }) => {
                let text = "rolled back: the locks are lost; trying again";
                print(line(order, Some(token), text))?;
                continue;
            }
            Err(error) => return Err(error).with_context(|| order.to_string()),
            Ok(Outcome::Booked(receipt)) => {
                let Receipt {
                    token,
                    from_balance,
                    to_balance,
                } = receipt;
                let text =
                    format!("booked: account {from} has {from_balance}, account {to} has {to_balance}");
                (Some(token), text)
            }
            Ok(Outcome::OverLimit(moved)) => {
                let pair = order.pair();
                (
                    None,
                    format!("refused: {moved} moved before, {LIMIT} is the limit of {pair}"),
                )
            }
            Ok(Outcome::NoFunds) => (None, format!("refused: account {from} has less than {amount}")),
        };
        return print(line(order, token, &text));
    }
}

/// The line of a transfer.
fn line(order: &Order, token: Option<FencingToken>, outcome: &str) -> String {
    let Order { id, from, to, amount } = order;
    let token = token.map_or("-".to_owned(), |token| token.to_string());
    format!(
        "{:>7}  {from:>6} -> {to:<2}  {amount:>6}  {token:>16}  {outcome}",
        id.process
    )
}

fn heading(options: &Options) -> String {
    let commit = if options.without_guard {
        "committed WITHOUT the guard"
    } else {
        "committed only if the locks are still held"
    };
    format!(
        "{} processes transfer between {} accounts, at most {LIMIT} between any two of them: under the locks\n\
         of both accounts with a lease of {}, {commit}.\n\
         Process 1 is stopped in the middle of one transfer, the others make {} each.\n\n\
         process    from -> to  amount     fencing token",
        options.processes,
        options.accounts,
        show(EXPIRY),
        options.transfers
    )
}

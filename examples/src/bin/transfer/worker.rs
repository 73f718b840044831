//! One of the processes: makes its transfers one after the other, and prints a line for each.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use mongolock::{FencingToken, LockError, LockProvider};
use mongolock_examples::output::println;
use mongolock_examples::paused::killed_with_parent;
use mongolock_examples::processes::{self, Worker, exit_with_parent};

use crate::approval::Approval;
use crate::bank::{Bank, LIMIT};
use crate::line::line;
use crate::options::Options;
use crate::order::{Order, OrderId};
use crate::transfer::{Outcome, transfer};

/// How long a stopped process keeps the others waiting.
pub(crate) const EXPIRY: Duration = Duration::from_secs(3);

/// A process may have to wait for all the others; longer than that there is something wrong.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// Makes the transfers of this process.
pub(crate) async fn run(worker: &Worker, options: &Options) -> anyhow::Result<ExitCode> {
    exit_with_parent();
    let process = worker.number;
    let database = processes::database(&worker.database).await?;
    let provider = LockProvider::builder(&database)
        .expiry(EXPIRY)
        .acquire_timeout(LONGEST_WAIT)
        .owner(format!("process {process}"))
        .build()?;
    provider.clone().set_global()?;

    let guarded = !options.without_guard;
    if process == STOPPED.id.process {
        killed_with_parent()?;
        make(&STOPPED, &Bank::new(&database, Approval::late()?, guarded)).await?;
    } else {
        let bank = Bank::new(&database, Approval::Takes(options.approval), guarded);
        for number in 1..=options.transfers {
            let order = Order::numbered(OrderId { process, number }, options.accounts);
            make(&order, &bank).await?;
        }
    }
    provider.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// The transfer that is stopped in the middle: it uses the whole limit, so that any other one between the two accounts
/// takes away what it was decided by.
pub(crate) const STOPPED: Order = Order {
    id: OrderId {
        process: 1,
        number: 1,
    },
    from: 1,
    to: 2,
    amount: LIMIT,
};

/// Makes one transfer; once more when its lock was lost, as nothing of it was booked then.
async fn make(order: &Order, bank: &Bank) -> anyhow::Result<()> {
    loop {
        match transfer(order, bank).await {
            Err(LockError::Lost { token, .. }) => {
                println(&line(order, Some(token), "refused: the lock was lost; once more"))?;
            }
            made => {
                let outcome = made.with_context(|| order.to_string())?;
                let (token, text) = show(order, &outcome);
                return println(&line(order, token, &text));
            }
        }
    }
}

fn show(order: &Order, outcome: &Outcome) -> (Option<FencingToken>, String) {
    let Order { from, to, amount, .. } = order;
    match outcome {
        Outcome::Booked(receipt) => (
            Some(receipt.token),
            format!(
                "booked: account {from} has {}, account {to} has {}",
                receipt.from, receipt.to
            ),
        ),
        Outcome::OverLimit(moved) => (
            None,
            format!(
                "refused: {moved} moved before, {LIMIT} is the limit of {}",
                order.pair()
            ),
        ),
        Outcome::NoFunds => (None, format!("refused: account {from} has less than {amount}")),
    }
}

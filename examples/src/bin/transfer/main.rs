//! Several processes transfer money between the same accounts, and a holder that has lost its lock commits nothing.
//!
//! ```text
//! cargo run --bin transfer
//! cargo run --bin transfer -- --processes 8 --transfers 20 --accounts 5
//! cargo run --bin transfer -- --without-guard
//! ```
//!
//! **Scene.** A transfer writes both balances and an entry of the journal in one transaction. Between two accounts no more
//! than a limit may be moved. The entries before the transaction decide that, and an approval by another system takes its
//! time. Both happen under the locks of both accounts; [`transfer`](transfer::transfer) is the code to copy. One of the
//! processes is stopped with SIGSTOP after its decision, until its lease has expired and the others have moved money between
//! the two accounts.
//!
//! **What it proves.** When it continues, `LockContext::commit` rejects its transaction: by the clock of the process, or, if
//! that clock has stood still (in a paused virtual machine), by the documents of the locks, which are part of the
//! transaction. With `--without-guard` the driver commits, and more is moved than the limit allows.
//!
//! **How it is checked.** The balances follow from the journal, no account is below zero, no pair is over the limit, the
//! tokens rise in the order of the entries, and the stopped transfer is not in the journal.

mod bank;
mod transfer;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, value_parser};
use mongodb::bson::doc;
use mongolock::{FencingToken, LockError, LockProvider};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::worker::{Worker, go, set_global};
use mongolock_examples::{all, print, show, summary::Summary};

use crate::bank::{Account, Bank, Entry, LIMIT, Order, OrderId};
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

/// Starts process 1, stops it in the middle of its transfer, lets the others make theirs, and checks the books.
async fn demonstrate(options: &Options, stage: &Stage) -> anyhow::Result<Summary> {
    let bank = Bank::new(stage.database(), options.approval, None);
    bank.open(options.accounts).await?;
    print(heading(options))?;

    let mut first = stage.start_workers(1..=1, &[])?;
    let waits = first.next_line().await?;
    print(waits.context("process 1 has ended before its transfer")?)?;
    let paused = first.pause(1)?;
    print("Process 1 is stopped. Its lease expires while the others work.")?;

    let mut others = stage.start_workers(2..=options.processes, &[])?;
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

    let accounts: Vec<Account> = all(&bank.accounts(), doc! { "_id": 1 }).await?;
    let journal: Vec<Entry> = all(&bank.journal(), doc! { "at": 1 }).await?;
    let mut summary = check(&accounts, &journal, options.accounts);
    summary.fail(failed);
    Ok(summary)
}

/// A worker process: makes its transfers one after the other, and prints a line for each.
async fn make_transfers(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    let process = worker.number;
    let database = worker.database().await?;
    let locks = LockProvider::builder(&database).expiry(EXPIRY);
    let locks = set_global(process, locks.acquire_timeout(ACQUIRE_TIMEOUT))?;
    let (go, is_stopped) = (go(), process == STOPPED.id.process);
    let mut bank = Bank::new(&database, options.approval, is_stopped.then_some(go));
    bank.is_guarded = !options.without_guard;
    if is_stopped {
        make(&STOPPED, &bank).await?;
    } else {
        for number in 1..=options.transfers {
            let order = Order::numbered(process, number, options.accounts);
            make(&order, &bank).await?;
        }
    }
    locks.shutdown().await;
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
            Err(error) => return Err(error).with_context(|| format!("{order:?}")),
            Ok(Outcome::Booked(token, [one, other])) => {
                let text = format!("booked: account {from} has {one}, account {to} has {other}");
                (Some(token), text)
            }
            Ok(Outcome::OverLimit(moved)) => {
                let pair = order.pair();
                let text = format!("refused: {moved} moved before, {LIMIT} is the limit of {pair}");
                (None, text)
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
    let process = id.process;
    format!("{process:>7}  {from:>6} -> {to:<2}  {amount:>6}  {token:>16}  {outcome}")
}

/// Compares the balances with the journal, and the journal, in the order of its entries, with the rules.
fn check(accounts: &[Account], journal: &[Entry], opened: u32) -> Summary {
    let mut summary = Summary::default();
    summary.row("journal entries", journal.len());
    let opened = (1..=opened).map(Account::opened).map(|it| (it.id, it.balance));
    let mut expected: BTreeMap<u32, i64> = opened.collect();
    let opening: i64 = expected.values().sum();
    let sum: i64 = accounts.iter().map(|account| account.balance).sum();
    summary.check("sum of balances", sum, sum == opening);

    let mut pairs: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in journal {
        *expected.entry(entry.order.from).or_default() -= entry.order.amount;
        *expected.entry(entry.order.to).or_default() += entry.order.amount;
        pairs.entry(&entry.pair).or_default().push(entry);
    }
    let balances: BTreeMap<u32, i64> = accounts.iter().map(|it| (it.id, it.balance)).collect();
    let wrong = (balances != expected).then(|| format!("{balances:?}, the journal says {expected:?}"));
    summary.finding("accounts", "each has its opening balance and its entries", wrong);

    let negative = balances.iter().filter(|(_, balance)| **balance < 0);
    let negative = negative.map(|(id, balance)| format!("account {id} has {balance}"));
    summary.finding("below zero", "none", negative);

    let moved = |entries: &[&Entry]| entries.iter().map(|entry| entry.order.amount).sum::<i64>();
    let over = pairs.iter().filter(|(_, entries)| moved(entries) > LIMIT);
    let over = over.map(|(pair, own)| format!("{} moved between {pair}, {LIMIT} is the limit", moved(own)));
    summary.finding("over the limit", "none", over);

    let rise = |entries: &[&Entry]| entries.is_sorted_by(|earlier, later| earlier.token < later.token);
    let wrong = pairs.iter().filter(|(_, entries)| !rise(entries));
    let wrong = wrong.map(|(pair, _)| format!("tokens do not rise between {pair}"));
    let passed = "rise strictly between any two accounts, in the order of the entries";
    summary.finding("tokens", passed, wrong);

    let is_booked = journal.iter().any(|entry| entry.order.id == STOPPED.id);
    let wrong = is_booked.then(|| "the stopped transfer is in the journal".to_owned());
    summary.finding("stopped transfer", "is not in the journal", wrong);
    summary
}

fn heading(options: &Options) -> String {
    let (processes, accounts, transfers) = (options.processes, options.accounts, options.transfers);
    let (lease, guarded) = (
        show(EXPIRY),
        if options.without_guard {
            "WITHOUT the"
        } else {
            "with a"
        },
    );
    format!(
        "To be proved: a holder that has lost its locks commits nothing, and no pair of accounts is over its limit.\n\n\
         {processes} processes transfer between {accounts} accounts, at most {LIMIT} between any two of them: under the\n\
         locks of both accounts with a lease of {lease}, {guarded} guarded commit.\n\
         Process 1 is stopped in the middle of one transfer, the others make {transfers} each.\n\n\
         process    from -> to  amount     fencing token"
    )
}

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

    /// How long a transfer waits for its approval, under the lock, in milliseconds
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = value_parser!(u64).range(..=3_600_000))]
    approval: u64,

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn orders_begin_with_the_first_pair_and_contain_all_pairs_in_both_directions() {
        for accounts in 2..=20 {
            let order = |process, number| Order::numbered(process, number, accounts);
            assert!((2..=64).all(|process| order(process, 1).pair() == "1-2"));
            let ways = (2..=3).flat_map(|process| (1..=400).map(move |number| order(process, number)));
            let ways: BTreeSet<_> = ways.map(|order| (order.from, order.to)).collect();
            assert_eq!(ways.len(), (accounts * (accounts - 1)) as usize);
            assert!(ways.iter().all(|(from, to)| from != to && *to <= accounts));
        }
    }

    #[test]
    fn each_problem_is_found() {
        // The process, the accounts, the amount and the token of each entry, and a change of the balances that follow.
        type Row = (u32, (u32, u32), i64, i64);
        let failures = |rows: &[Row], change: [i64; 2]| {
            let mut accounts = [1, 2].map(Account::opened);
            let entry = |(process, (from, to), amount, token): &Row| {
                let (process, number) = (*process, 1);
                let (id, from, to, amount) = (OrderId { process, number }, *from, *to, *amount);
                Order { id, from, to, amount }.entry(FencingToken::from(*token))
            };
            let journal: Vec<_> = rows.iter().map(entry).collect();
            for Entry { order, .. } in &journal {
                accounts[order.from as usize - 1].balance -= order.amount;
                accounts[order.to as usize - 1].balance += order.amount;
            }
            (0..2).for_each(|at| accounts[at].balance += change[at]);
            check(&accounts, &journal, 2).failures().join("; ")
        };
        let right = [(2, (1, 2), 300, 5), (3, (2, 1), 150, 9), (4, (1, 2), 50, 10)];
        assert_eq!(failures(&right, [0, 0]), "");
        let moved = "{1: 9999, 2: 201}, the journal says {1: 10000, 2: 200}";
        assert_eq!(failures(&[], [-1, 1]), moved);
        assert!(failures(&right, [0, 1]).starts_with("sum of balances: 10201; "));
        assert_eq!(failures(&[(2, (2, 1), 201, 5)], [0, 0]), "account 2 has -1");
        let both = [(2, (1, 2), 300, 5), (3, (2, 1), 201, 6)];
        assert_eq!(failures(&both, [0, 0]), "501 moved between 1-2, 500 is the limit");
        let falling = [(2, (1, 2), 10, 5), (3, (2, 1), 10, 5)];
        assert_eq!(failures(&falling, [0, 0]), "tokens do not rise between 1-2");
        let stopped = failures(&[(1, (1, 2), 10, 5)], [0, 0]);
        assert_eq!(stopped, "the stopped transfer is in the journal");
    }
}

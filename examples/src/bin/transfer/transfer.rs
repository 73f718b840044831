//! The code to copy: a transfer that is decided under a lock, and committed only if the lock is still held.

use mongodb::options::WriteConcern;
use mongolock::{FencingToken, LockContext, LockError, distributed_lock};
use mongolock_examples::print;
use tokio::time::sleep;

use crate::bank::{Bank, LIMIT, Order};
use crate::line;

/// How a transfer without an error ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The token of the booking, and the two balances after it.
    Booked(FencingToken, [i64; 2]),
    /// This amount was moved between the two accounts before.
    OverLimit(i64),
    NoFunds,
}

/// The lock protects what no transaction checks: the sum of all entries of a pair. Two transactions that each read the
/// sum and insert an entry do not conflict. A balance alone needs no lock: it is one document, and transactions that write
/// it conflict.
///
/// Both accounts are locked together, all or nothing, so that transfers in opposite directions cannot block each other, and
/// the transaction is guarded by both locks. The token of the account with the smaller number stands in the journal: tokens
/// of different locks do not order each other, and every transfer between two accounts has that one.
///
/// With `on_lost = "continue"` the commit decides, which is what this program shows. Without it a body is dropped at its
/// first await point after the loss; a commit that has begun is never cancelled.
#[distributed_lock(name = ["account:<order.from>", "account:<order.to>"], on_lost = "continue")]
pub(crate) async fn transfer(
    order: &Order,
    bank: &Bank,
    #[lock] lock: LockContext,
) -> Result<Outcome, LockError> {
    let first = format!("account:{}", order.from.min(order.to));
    let token = lock.fencing_token_of(&first).expect("it is one of the two");

    let moved = bank.moved(&order.pair()).await?;
    if moved + order.amount > LIMIT {
        return Ok(Outcome::OverLimit(moved));
    }
    // The approval takes its time, and no transaction is open meanwhile.
    match &bank.go {
        None => sleep(bank.approval).await,
        Some(go) => {
            // The program stops this process when it reads the line. Without the program, the process ends.
            let _ = print(line(order, Some(token), "waits for its approval"));
            go.wait().await;
        }
    }

    let mut session = bank.database.client().start_session().await?;
    let transaction = session
        .start_transaction()
        .write_concern(WriteConcern::majority());
    // The driver repeats all of it after transient errors.
    let booked = transaction
        .and_run2(async move |session| {
            let Some(balances) = bank.book(order, token, session).await? else {
                session.abort_transaction().await?;
                return Ok(None);
            };
            if bank.is_guarded {
                lock.commit(session).await?;
            }
            // Otherwise the driver commits, whether the locks are still held or not.
            Ok(Some(balances))
        })
        .await?;
    Ok(booked.map_or(Outcome::NoFunds, |balances| Outcome::Booked(token, balances)))
}

//! The code to copy: a transfer that is decided under a lock, and committed only if the lock is still held.

use mongodb::options::WriteConcern;
use mongolock::{LockContext, LockError, distributed_lock};

use crate::bank::{Bank, LIMIT, Receipt};
use crate::order::Order;

/// How a transfer ended that met no error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Booked(Receipt),
    /// So much was moved between the two accounts before.
    OverLimit(i64),
    NoFunds,
}

/// The lock protects what no transaction checks: the sum of all entries of a pair. Two transactions that each read the
/// sum and insert an entry are not in conflict. A balance needs no lock: it is one document, and transactions that
/// write it are in conflict, also those of different pairs.
///
/// One lock for two accounts, with both in its name in a fixed order, so that transfers in both directions exclude
/// each other. A lock for each account would need that fixed order as well, lest two transfers wait for each other; it
/// would exclude pairs that have one account in common; and only one of the two locks could guard the commit.
///
/// `on_lost = "continue"`, so that here the commit decides and is seen to. Without it a body is dropped at the first
/// step after the loss, if its own clock tells of that; a commit that has begun is never broken off.
#[distributed_lock(name = "transfer:<order.pair()>", on_lost = "continue")]
pub(crate) async fn transfer(order: &Order, bank: &Bank) -> Result<Outcome, LockError> {
    let lock = LockContext::current().expect("inside the attribute");
    let token = lock.fencing_token();

    let moved = bank.moved(order.pair()).await?;
    if moved + order.amount > LIMIT {
        return Ok(Outcome::OverLimit(moved));
    }
    // Somebody else's approval takes its time, and no transaction is kept open for it.
    bank.approval(order, token).await;

    let mut session = bank.client().start_session().await?;
    let transaction = session
        .start_transaction()
        .write_concern(WriteConcern::majority());
    // The driver repeats the whole of it after errors that pass, such as the conflict with another pair.
    let booked = transaction
        .and_run2(async move |session| {
            let Some(receipt) = bank.book(order, token, session).await? else {
                session.abort_transaction().await?;
                return Ok(None);
            };
            if bank.is_guarded() {
                lock.commit(session).await?;
            }
            // Otherwise the driver commits, whoever has the lock by now.
            Ok(Some(receipt))
        })
        .await?;
    Ok(booked.map_or(Outcome::NoFunds, Outcome::Booked))
}

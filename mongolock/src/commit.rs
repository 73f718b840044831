//! Commits that take effect only if the lock is still held.

mod session;

use std::sync::Arc;

use mongodb::ClientSession;
use session::{abort, commit, ensure_transaction, send_guard};

use crate::LockError;
use crate::engine::{CancelShield, Engine, Lease, OpenCommit};
use crate::error::meaning::Meaning;
use crate::options::not_once;
use crate::store::{GuardChange, GuardOutcome};

const NOT_BEGUN: &str = "the session has no transaction (a standalone server does not support transactions)";
const BEGUN_TOO_EARLY: &str = "the transaction did not begin under the lock: it began before the lock was acquired, or on another deployment";

/// A transaction was committed. The error says that its write concern cannot be met.
pub(crate) type Made = Result<(), LockError>;

/// Commits the session's transaction if the claims of all leases still have their locks, and ends the transaction in any
/// case.
///
/// The shields prevent the cancellation of the bodies around the commit while it is in flight.
pub(crate) async fn guarded(
    leases: &[&Arc<Lease>],
    engine: &Arc<Engine>,
    marks: bool,
    change: impl Fn(&Lease) -> GuardChange,
    shields: impl FnOnce() -> Vec<CancelShield>,
    session: &mut ClientSession,
) -> Result<Made, LockError> {
    let store = &engine.store;
    let open = leases.iter().map(|lease| engine.begin_commit(lease, marks));
    let open = open.collect();
    if let Err(error) = guard_all(leases, engine, change, session).await {
        abort(store, session).await;
        ended(open, false);
        return Err(error);
    }
    let _shields = shields();
    commit(leases[0], store, open, session).await
}

fn ended(open: Vec<OpenCommit<'_>>, made: bool) {
    for commit in open {
        commit.ended(made);
    }
}

async fn guard_all(
    leases: &[&Arc<Lease>],
    engine: &Arc<Engine>,
    change: impl Fn(&Lease) -> GuardChange,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    for lease in leases {
        guard(lease, engine, change(lease), session).await?;
    }
    Ok(())
}

/// The change of the guarding statement for a commit that keeps the lock: it renews the lease, unless `max_hold` is
/// reached.
pub(crate) fn keeping(lease: &Lease) -> GuardChange {
    if lease.is_renewable_now() {
        GuardChange::Renew(lease.options().expiry)
    } else {
        GuardChange::Keep
    }
}

/// Commits the session's transaction as [`guarded`] does, and marks the work as done in the same transaction.
///
/// From before the guarding statement on, a renewal that does not find the claim proves nothing: the transaction may
/// have ended the claim. If the outcome of the commit is unknown, it stays unknown until the hold ends: by its release,
/// at its deadline or by a shutdown.
pub(crate) async fn guarded_done(
    lease: &Arc<Lease>,
    engine: &Arc<Engine>,
    shields: impl FnOnce() -> Vec<CancelShield>,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    let store = &engine.store;
    let Some(end) = lease.mark_end() else {
        abort(store, session).await;
        return Err(not_once("commit_done"));
    };
    ensure_transaction(lease, store, session).await?;
    if lease.is_over() {
        abort(store, session).await;
        return Err(lease.lost_error());
    }
    let mark = |_: &Lease| GuardChange::Mark(end);
    let committed = guarded(&[lease], engine, true, mark, shields, session).await;
    let was_made = engine.commit_ended(lease, &committed).await;
    if was_made { Ok(()) } else { committed? }
}

/// Sends the last statement of the transaction, which changes the documents of the lease: no other client can acquire a lock
/// between the statement and the commit, and none has acquired it since the transaction began.
///
/// The statement renews the lease at the server, but the holder does not rely on that renewal: with a write concern
/// weaker than majority the commit can be rolled back.
async fn guard(
    lease: &Arc<Lease>,
    engine: &Arc<Engine>,
    change: GuardChange,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    match send_guard(lease, &engine.store, change, session).await {
        Ok(GuardOutcome::Guarded) => Ok(()),
        Ok(GuardOutcome::Lost) => {
            engine.claim_is_gone(lease);
            Err(lease.lost_error())
        }
        Ok(GuardOutcome::NotVisible) => Err(none_to_guard(lease, BEGUN_TOO_EARLY)),
        Err(error) if error.meaning() == Meaning::NoTransaction => Err(none_to_guard(lease, NOT_BEGUN)),
        Err(error) => Err(error),
    }
}

fn none_to_guard(lease: &Lease, reason: &str) -> LockError {
    LockError::NoTransaction {
        name: lease.name().to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests;

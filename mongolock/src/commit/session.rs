//! The commands of a guarded commit on the caller's session, and what the core is told of it.

use std::sync::Arc;

use mongodb::ClientSession;
use mongodb::error::{
    Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure,
};
use scopeguard::ScopeGuard;
use tokio::time::timeout;

use crate::LockError;
use crate::backoff::Repetitions;
use crate::core::Event;
use crate::engine::Lease;
use crate::error::meaning::{Meaning, NO_WRITES_PERFORMED, is_max_time_expired, is_rejected};
use crate::protocol::Until;
use crate::store::reply::with_label;
use crate::store::{GuardChange, GuardOutcome, Store};
use crate::timing::{DRIVER_LIMIT, FAILOVER_LIMIT};

const NOT_BEGUN: &str = "the session has no transaction (a standalone server does not support transactions)";
const NO_COMMIT: &str = "timed out waiting for the reply to the commit";
const NO_GUARD: &str = "timed out waiting for the reply to the statement that guards the commit";
const BEGUN_TOO_EARLY: &str = "the transaction did not begin under the lock: it began before the lock was acquired, or on another deployment";

fn none_to_guard(lease: &Lease, reason: &str) -> LockError {
    LockError::NoTransaction {
        name: lease.name().to_owned(),
        reason: reason.to_owned(),
    }
}

/// Returns an error if the session has no transaction: a statement outside a transaction takes effect at once, and would
/// mark or release a lock whose work is never committed.
///
/// The driver shows this only by refusing to begin a second transaction, for which it sends nothing.
pub(super) async fn ensure_transaction(
    lease: &Lease,
    store: &Store,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    if !store.is_on_server() {
        // The guarding statement fails with the reason.
        return Ok(());
    }
    let error = match session.start_transaction().await {
        Ok(()) => {
            abort(store, session).await;
            return Err(none_to_guard(lease, NOT_BEGUN));
        }
        Err(error) => error,
    };
    match &*error.kind {
        ErrorKind::Transaction { message, .. } if message.contains("in progress") => Ok(()),
        ErrorKind::Transaction { .. } => Err(none_to_guard(lease, NOT_BEGUN)),
        _ => Err(error.into()),
    }
}

/// Ends the transaction of a session. An error is ignored, because the server itself ends a transaction that is not
/// aborted.
pub(super) async fn abort(store: &Store, session: &mut ClientSession) {
    let _ = timeout(DRIVER_LIMIT, session.abort_transaction()).await;
    // The driver does not report whether the server has rejected the abort.
    if store.overloaded_for().is_some() {
        end_open(store, session).await;
    }
}

/// Ends the transaction that the server may still have for the session: it would block the locks' documents, also for their
/// holder, until the server ends it itself. The server aborts the transaction of a session when the session begins another one.
async fn end_open(store: &Store, session: &mut ClientSession) {
    let replacing = async {
        let mut repetitions = Repetitions::new(FAILOVER_LIMIT);
        while session.start_transaction().await.is_ok() {
            let begun = store.guard(&[], GuardChange::Keep, session).await;
            let _ = session.abort_transaction().await;
            let is_rejected = matches!(begun, Err(LockError::Mongo(error)) if is_rejected(&error));
            if !is_rejected || !repetitions.next().await {
                return;
            }
        }
    };
    let _ = timeout(DRIVER_LIMIT, replacing).await;
}

/// Sends the last statement of the transaction, which changes the documents of the lease: no other client can acquire a lock
/// between the statement and the commit, and none has acquired it since the transaction began. It is sent until the server does not
/// reject it. If the server rejects it for too long, the error says that the transaction can be repeated as a whole.
///
/// The statement marks the work as done, or renews the lease at the server unless that is at its maximum. The holder does not rely on
/// that renewal: with a write concern weaker than majority the commit can be rolled back.
pub(super) async fn guard(
    lease: &Arc<Lease>,
    mark: Option<Until>,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    let options = &lease.about.options;
    let change = match mark {
        Some(end) => GuardChange::Mark(end),
        None if options.max_hold.is_some_and(|most| lease.held_for() >= most) => GuardChange::Keep,
        None => GuardChange::Renew(options.expiry),
    };
    let (store, mut repetitions) = (&lease.engine.store, Repetitions::new(FAILOVER_LIMIT));
    loop {
        lease.ensure_may_commit()?;
        match timeout(DRIVER_LIMIT, store.guard(lease.keys(), change, session)).await {
            Ok(Ok(GuardOutcome::Guarded)) => return Ok(()),
            Ok(Ok(GuardOutcome::Lost)) => {
                lease.claim_is_gone();
                return Err(lease.lost_error());
            }
            Ok(Ok(GuardOutcome::NotVisible)) => return Err(none_to_guard(lease, BEGUN_TOO_EARLY)),
            Ok(Err(LockError::Mongo(error))) if is_rejected(&error) => {
                if !repetitions.next().await {
                    return Err(with_label(&error, TRANSIENT_TRANSACTION_ERROR).into());
                }
            }
            Ok(Err(error)) if error.meaning() == Meaning::NoTransaction => {
                return Err(none_to_guard(lease, NOT_BEGUN));
            }
            Ok(Err(error)) => return Err(error),
            // The transaction is aborted, and can be repeated as a whole.
            Err(_) => {
                return Err(with_label(&Error::custom(NO_GUARD), TRANSIENT_TRANSACTION_ERROR).into());
            }
        }
    }
}

/// Sends the commit until its outcome is known or its time limit has passed. Repeating it is safe, because the server
/// commits a transaction only once. The error says that it was not made, that this is not known, or that its write concern cannot be
/// met.
pub(super) async fn commit(
    lease: &Lease,
    mut open: Open<'_>,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    let (store, mut repetitions) = (&lease.engine.store, Repetitions::new(FAILOVER_LIMIT));
    let mut was_unknown = false;
    loop {
        let error = match timeout(DRIVER_LIMIT, session.commit_transaction()).await {
            Ok(Ok(())) => {
                open.was_made = Some(true);
                return Ok(());
            }
            Ok(Err(error)) if cannot_be_confirmed(&error) => {
                open.was_made = Some(true);
                return Err(error.into());
            }
            Ok(Err(error)) => error,
            Err(_) => with_label(&Error::custom(NO_COMMIT), UNKNOWN_TRANSACTION_COMMIT_RESULT),
        };
        store.note(&Err::<(), _>(error.clone().into()));
        // The driver sends a commit again after a failed connection, and may return the rejection of the repetition.
        let was_rejected = is_rejected(&error);
        was_unknown |= error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
            || was_rejected && !error.contains_label(NO_WRITES_PERFORMED);
        if (is_unknown(&error) || was_rejected) && repetitions.next().await {
            continue;
        }
        let was_aborted = error.contains_label(TRANSIENT_TRANSACTION_ERROR);
        let is_missing = Meaning::of(&error) == Meaning::NoTransaction;
        let has_transaction = !was_aborted && !is_missing;
        if has_transaction && !was_unknown {
            end_open(store, session).await;
        }
        if !was_unknown || was_aborted {
            open.was_made = Some(false);
        }
        return Err(if is_missing {
            none_to_guard(lease, NOT_BEGUN)
        } else if was_rejected && was_unknown {
            with_label(&error, UNKNOWN_TRANSACTION_COMMIT_RESULT).into()
        } else {
            error.into()
        });
    }
}

/// Whether the outcome of the commit is unknown for another reason than the time limit that the caller has set for it.
fn is_unknown(error: &Error) -> bool {
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && !is_max_time_expired(error)
}

/// Whether the primary has committed the transaction, but its write concern cannot be met: too few members, or unknown
/// tags. The driver treats every other write concern error of a commit as an unknown outcome.
fn cannot_be_confirmed(error: &Error) -> bool {
    let is_write_concern = matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteConcernError(_)));
    is_write_concern && !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
}

/// A guarded commit under these leases, from before its guarding statement to its end. Dropped without one, its outcome is unknown.
pub(super) struct OpenCommit<'a> {
    leases: &'a [&'a Arc<Lease>],
    marks: bool,
    /// Whether the commit has ended with success. With either value the server can no longer apply it.
    pub(super) was_made: Option<bool>,
}

/// It ends when it is dropped.
type Open<'a> = ScopeGuard<OpenCommit<'a>, fn(OpenCommit<'a>)>;

impl<'a> OpenCommit<'a> {
    /// Notes that a commit begins. It is called before the check that no hold is over.
    pub(super) fn begin(leases: &'a [&'a Arc<Lease>], marks: bool) -> Open<'a> {
        for lease in leases {
            lease.commit_begins();
            let hold = lease.granted().hold;
            lease.engine.apply(Event::CommitBegins { hold, marks });
        }
        let open = Self {
            leases,
            marks,
            was_made: None,
        };
        scopeguard::guard(open, Self::end)
    }

    fn end(self) {
        let Self { marks, was_made, .. } = self;
        for lease in self.leases {
            lease.commit_ends(was_made, marks);
            let is_unknown = was_made.is_none() && marks;
            lease.engine.apply(Event::CommitEnds {
                hold: lease.granted().hold,
                marks,
                was_made,
                awaited: is_unknown.then(|| Arc::clone(lease)),
            });
        }
    }
}

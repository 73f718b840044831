//! Commits that are made only if the lock is still held.

use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::error::{Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use tokio::time::{Instant, timeout};

use crate::backoff::Backoff;
use crate::lease::renewer::Renewer;
use crate::lease::{CancelShield, Lease, OpenCommit};
use crate::moment::Luck;
use crate::options::not_once;
use crate::store::driver_error;
use crate::store::reply::{labelled, with_label};
use crate::store::{GuardChange, GuardOutcome, LeaseId, Store};
use crate::timing::{COMMIT_LIMIT, COMMIT_NO_REPLY};
use crate::{LockError, LossReason};

const NOT_BEGUN: &str = "the session has no transaction (a standalone server does not support transactions)";
const BEGUN_TOO_EARLY: &str = "the transaction did not begin under the lock: it began before the lock was acquired, or on another deployment";

/// Commits the session's transaction if the claims of all leases still have their locks, and ends the transaction in any
/// case.
///
/// The shields prevent the cancellation of the bodies around the commit while it is in flight.
pub(crate) async fn guarded(
    leases: &[&Arc<Lease>],
    store: &Store,
    change: impl Fn(&Lease) -> GuardChange,
    shields: impl FnOnce() -> Vec<CancelShield>,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    let open = leases.iter().map(|lease| lease.begin_commit()).collect();
    if let Err(error) = guard_all(leases, store, change, session).await {
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
    store: &Store,
    change: impl Fn(&Lease) -> GuardChange,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    for lease in leases {
        for key in lease.keys() {
            guard(lease, key, store, change(lease), session).await?;
        }
    }
    Ok(())
}

/// What the guarding statement of a commit does that keeps the lock: it renews the lease, unless that is at its maximum.
pub(crate) fn keeping(lease: &Lease) -> GuardChange {
    if lease.is_renewable(Instant::now()) {
        GuardChange::Renew(lease.options.expiry)
    } else {
        GuardChange::Keep
    }
}

/// Commits the session's transaction as [`guarded`] does, and marks the work as done in the same transaction.
///
/// From before the guarding statement on, a renewal that does not find the claim says nothing: the mark may have replaced
/// it. If the outcome of the commit is not known, that stays so until the hold ends: by its release, at its deadline or by a
/// shutdown.
pub(crate) async fn guarded_done(
    lease: &Arc<Lease>,
    renewer: &Arc<Renewer>,
    shields: impl FnOnce() -> Vec<CancelShield>,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    let store = renewer.store();
    let Some(once) = lease.once else {
        abort(store, session).await;
        return Err(not_once("commit_done"));
    };
    ensure_transaction(lease, store, session).await?;
    if !lease.begin_commit_with_mark() {
        abort(store, session).await;
        return Err(lease.lost_error());
    }
    let change = |_: &Lease| GuardChange::Mark(once.mark_end);
    let committed = guarded(&[lease], store, change, shields, session).await;
    match &committed {
        Ok(()) => renewer.completed(lease),
        Err(_) if lease.may_commit() => renewer.go_on(lease),
        Err(_) => renewer.resume(lease),
    }
    committed
}

/// Returns an error if the session has no transaction: a statement outside a transaction takes effect at once, and a mark
/// would say that work is done that is never committed.
///
/// The driver tells only by refusing to begin a second transaction, for which it sends nothing.
async fn ensure_transaction(
    lease: &Lease,
    store: &Store,
    session: &mut ClientSession,
) -> Result<(), LockError> {
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
async fn abort(store: &Store, session: &mut ClientSession) {
    let _ = timeout(COMMIT_NO_REPLY, session.abort_transaction()).await;
    // The driver does not say whether the server has rejected that.
    if store.overloaded_for().is_some() {
        end_open(store, session).await;
    }
}

/// Ends the transaction that the server may still have for the session: it would block the locks' documents, also for their
/// holder, until the server ends it itself. The server aborts the transaction of a session when the session begins another one.
async fn end_open(store: &Store, session: &mut ClientSession) {
    let _ = timeout(COMMIT_NO_REPLY, replace_open(store, session)).await;
}

async fn replace_open(store: &Store, session: &mut ClientSession) {
    let mut backoff = pauses();
    while session.start_transaction().await.is_ok() {
        let begun = store.begin_transaction(session).await;
        let _ = session.abort_transaction().await;
        match begun {
            Err(error) if driver_error::is_rejected(&error) => {
                tokio::time::sleep(backoff.next(Luck::draw())).await;
            }
            _ => return,
        }
    }
}

/// Sends the last statement of the transaction, which changes the lock's document: no other client can acquire the lock
/// between the statement and the commit, and none has acquired it since the transaction began.
///
/// The statement renews the lease at the server, but the holder does not count on that renewal: with a write concern
/// weaker than majority the commit can be rolled back.
async fn guard(
    lease: &Lease,
    key: &LeaseId,
    store: &Store,
    change: GuardChange,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    match send_guard(lease, key, store, change, session).await {
        Ok(GuardOutcome::Guarded) => Ok(()),
        Ok(GuardOutcome::Lost) => {
            lease.cancel_completion();
            lease.lose(LossReason::Gone);
            Err(lease.lost_error())
        }
        Ok(GuardOutcome::NotVisible) => Err(none_to_guard(lease, BEGUN_TOO_EARLY)),
        Err(LockError::Mongo(error)) if driver_error::is_no_transaction(&error) => {
            Err(none_to_guard(lease, NOT_BEGUN))
        }
        Err(error) => Err(error),
    }
}

/// Sends that statement until the server does not reject it. If it does so for too long, the error says that the transaction
/// can be repeated as a whole.
async fn send_guard(
    lease: &Lease,
    key: &LeaseId,
    store: &Store,
    change: GuardChange,
    session: &mut ClientSession,
) -> Result<GuardOutcome, LockError> {
    let until = Instant::now() + COMMIT_LIMIT;
    let mut backoff = pauses();
    loop {
        lease.ensure_held()?;
        let Ok(reply) = timeout(COMMIT_NO_REPLY, store.guard(key, change, session)).await else {
            return Err(no_guard().into());
        };
        match reply {
            Err(LockError::Mongo(error)) if driver_error::is_rejected(&error) => {
                let pause = backoff.next(Luck::draw());
                if Instant::now() + pause >= until {
                    return Err(with_label(&error, TRANSIENT_TRANSACTION_ERROR).into());
                }
                tokio::time::sleep(pause).await;
            }
            reply => return reply,
        }
    }
}

/// The pauses between the repetitions of a command in a transaction.
fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1))
}

/// Sends the commit until its outcome is known or its time limit has passed. Repeating it is safe, because the server
/// commits a transaction only once.
async fn commit(
    lease: &Lease,
    store: &Store,
    open: Vec<OpenCommit<'_>>,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    let until = Instant::now() + COMMIT_LIMIT;
    let mut backoff = pauses();
    let mut was_unknown = false;
    loop {
        let sent = Instant::now();
        let error = match timeout(COMMIT_NO_REPLY, session.commit_transaction()).await {
            Ok(Ok(())) => {
                ended(open, true);
                return Ok(());
            }
            Ok(Err(error)) => error,
            Err(_) => labelled(
                UNKNOWN_TRANSACTION_COMMIT_RESULT,
                "timed out waiting for the reply to the commit",
            ),
        };
        store.note(sent, &Err::<(), _>(error.clone().into()));
        // The driver sends a commit again after a failed connection, and may return the rejection of the repetition.
        let is_rejected = driver_error::is_rejected(&error);
        was_unknown |= error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
            || is_rejected && !error.contains_label(driver_error::NO_WRITES_PERFORMED);
        let pause = backoff.next(Luck::draw());
        let is_repeated = is_unknown(&error) || is_rejected;
        if is_repeated && Instant::now() + pause < until {
            tokio::time::sleep(pause).await;
            continue;
        }
        let was_aborted = error.contains_label(TRANSIENT_TRANSACTION_ERROR);
        let has_transaction = !was_aborted && !driver_error::is_no_transaction(&error);
        if has_transaction && !was_unknown {
            end_open(store, session).await;
        }
        if !was_unknown || was_aborted {
            ended(open, false);
        }
        return Err(if driver_error::is_no_transaction(&error) {
            none_to_guard(lease, NOT_BEGUN)
        } else if is_rejected && was_unknown {
            with_label(&error, UNKNOWN_TRANSACTION_COMMIT_RESULT).into()
        } else {
            error.into()
        });
    }
}

/// Whether the outcome of the commit is unknown for another reason than the time limit that the caller has set for it.
fn is_unknown(error: &Error) -> bool {
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && !driver_error::is_max_time_expired(error)
}

/// The error for a guarding statement without a reply: the transaction is aborted, and can be repeated as a whole.
fn no_guard() -> Error {
    labelled(
        TRANSIENT_TRANSACTION_ERROR,
        "timed out waiting for the reply to the statement that guards the commit",
    )
}

fn none_to_guard(lease: &Lease, reason: &str) -> LockError {
    LockError::NoTransaction {
        name: lease.name().to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{FencingToken, LockGuard, LockProvider};

    /// The tokens of two holders, one after the other, that both waited for the lock.
    async fn tokens(between: impl FnOnce(&LockGuard)) -> (FencingToken, FencingToken) {
        let provider = LockProvider::in_memory();
        let rival = provider.to_builder().build().unwrap().lock("a").await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..2 {
            let lock = provider.lock("a");
            waiting.spawn(async move { lock.acquire().await.unwrap() });
        }
        tokio::task::yield_now().await;
        rival.release().await.unwrap();
        let first = waiting.join_next().await.unwrap().unwrap();
        let token = first.fencing_token();
        between(&first);
        first.release().await.unwrap();
        (token, waiting.join_next().await.unwrap().unwrap().fencing_token())
    }

    /// A lock whose work may succeed once, with a lease of a second that is not renewed.
    async fn committing(provider: &LockProvider) -> LockGuard {
        let lock = provider.lock("a").once().expiry(Duration::from_secs(1));
        let guard = lock.max_hold(Duration::ZERO).acquire().await.unwrap();
        assert!(guard.lease().begin_commit_with_mark());
        guard
    }

    fn assert_lost(guard: &LockGuard, expected: LossReason) {
        assert!(guard.lease().is_lost());
        let error = guard.lease().lost_error();
        assert!(
            matches!(error, LockError::Lost { reason, .. } if reason == expected),
            "{error}"
        );
    }

    /// The guard lives on, and does not keep the turn.
    async fn assert_turn_is_free(provider: &LockProvider) {
        let next = provider.lock("a").acquire();
        drop(timeout(Duration::from_secs(10), next).await.unwrap().unwrap());
    }

    /// The deadline passes before the commit has failed, or before its outcome has become unknown.
    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_after_a_failed_commit_that_took_too_long() {
        for is_known in [true, false] {
            let provider = LockProvider::in_memory();
            let guard = committing(&provider).await;
            let open = guard.lease().begin_commit();
            sleep(Duration::from_secs(2)).await;
            assert!(!guard.lease().is_lost(), "the commit decides");
            let renewer = &provider.engine().renewer;
            if is_known {
                open.ended(false);
                renewer.resume(guard.lease());
            } else {
                drop(open);
                renewer.go_on(guard.lease());
            }
            assert_lost(&guard, LossReason::Expired);
            assert_turn_is_free(&provider).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_commit_has_no_known_outcome_ends_at_its_deadline() {
        let provider = LockProvider::in_memory();
        let guard = committing(&provider).await;
        drop(guard.lease().begin_commit());
        guard.lease().lose(LossReason::Gone);
        assert!(!guard.lease().is_lost(), "the mark may have replaced the claim");
        sleep(Duration::from_secs(2)).await;
        assert_lost(&guard, LossReason::Expired);
        assert_turn_is_free(&provider).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_commit_has_no_known_outcome_keeps_no_shutdown_waiting() {
        let provider = LockProvider::in_memory();
        let guard = committing(&provider).await;
        drop(guard.lease().begin_commit());
        timeout(Duration::from_secs(5), provider.shutdown())
            .await
            .unwrap();
        assert_lost(&guard, LossReason::ShutDown);
    }

    /// The claim guards the commit: the next hold must not use the same claim while the commit may still take effect.
    #[tokio::test(start_paused = true)]
    async fn a_claim_with_an_open_commit_is_not_handed_over() {
        let is_next = |(token, next): (FencingToken, FencingToken)| next.get() == token.get() + 1;
        assert!(is_next(tokens(|_| ()).await), "this is how a hand-over looks");
        let made = |guard: &LockGuard| guard.lease().begin_commit().ended(true);
        assert!(is_next(tokens(made).await));

        let under_way = |guard: &LockGuard| std::mem::forget(guard.lease().begin_commit());
        assert!(!is_next(tokens(under_way).await));
        let cut_off = |guard: &LockGuard| drop(guard.lease().begin_commit());
        assert!(!is_next(tokens(cut_off).await));
    }
}

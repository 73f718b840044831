//! Commits that hold only if the lock does.

use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use tokio::time::{Instant, timeout};

use crate::LockError;
use crate::backoff::Backoff;
use crate::lease::{CancelShield, Lease, LossReason, OpenCommit};
use crate::store::driver_error;
use crate::store::reply::labelled;
use crate::store::{GuardOutcome, Store};
use crate::timing::{COMMIT_LIMIT, COMMIT_NO_REPLY};

const NOT_BEGUN: &str = "the session has no transaction; start one first, which takes a replica set or a sharded cluster (a \
                         standalone server has no transactions)";
const BEGUN_TOO_EARLY: &str =
    "its transaction began before the lock was acquired, or on another deployment; begin it under the lock";

/// Commits the session's transaction if the claim of the context's lease stands, and ends it in any case.
///
/// The shields keep the bodies around the commit from being cancelled once it is on its way.
pub(crate) async fn guarded(
    lease: &Arc<Lease>,
    store: &Store,
    shields: impl FnOnce() -> Vec<CancelShield>,
    session: &mut ClientSession,
) -> Result<(), LockError> {
    let open = lease.begin_commit();
    if let Err(error) = guard(lease, store, session).await {
        // The first error says what is wrong; the server ends a transaction that is not aborted by itself.
        let _ = timeout(COMMIT_NO_REPLY, session.abort_transaction()).await;
        open.ended(false);
        return Err(error);
    }
    let _shields = shields();
    commit(lease, open, session).await
}

/// The last statement of the transaction changes the lock's document: from then on until the commit no other can take
/// the lock, and nobody has taken it since the transaction began.
///
/// The renewal in it is the server's; the holder does not count on it. With a weaker write concern than a majority's the
/// commit could be undone.
async fn guard(lease: &Lease, store: &Store, session: &mut ClientSession) -> Result<(), LockError> {
    lease.ensure_held()?;
    let expiry = lease.is_renewable(Instant::now()).then_some(lease.options.expiry);
    let touched = store.touch(&lease.key, expiry, session);
    match timeout(COMMIT_NO_REPLY, touched)
        .await
        .unwrap_or_else(|_| Err(no_guard()))
    {
        Ok(GuardOutcome::Guarded) => Ok(()),
        Ok(GuardOutcome::Lost) => {
            lease.end(LossReason::Gone);
            Err(lease.lost_error())
        }
        Ok(GuardOutcome::NotVisible) => Err(none_to_guard(lease, BEGUN_TOO_EARLY)),
        Err(LockError::Mongo(error)) if driver_error::is_no_transaction(&error) => {
            Err(none_to_guard(lease, NOT_BEGUN))
        }
        Err(error) => Err(error),
    }
}

/// A commit whose outcome is not known may be repeated: it is made once. Only an outcome that is known ends it.
async fn commit(lease: &Lease, open: OpenCommit<'_>, session: &mut ClientSession) -> Result<(), LockError> {
    let until = Instant::now() + COMMIT_LIMIT;
    let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
    let mut was_unknown = false;
    loop {
        let error = match timeout(COMMIT_NO_REPLY, session.commit_transaction()).await {
            Ok(Ok(())) => {
                open.ended(true);
                return Ok(());
            }
            Ok(Err(error)) => error,
            Err(_) => labelled(UNKNOWN_TRANSACTION_COMMIT_RESULT, "no reply to the commit"),
        };
        was_unknown |= error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT);
        let pause = backoff.next();
        if is_unknown(&error) && Instant::now() + pause < until {
            tokio::time::sleep(pause).await;
            continue;
        }
        if !was_unknown || error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
            open.ended(false);
        }
        return Err(if driver_error::is_no_transaction(&error) {
            none_to_guard(lease, NOT_BEGUN)
        } else {
            error.into()
        });
    }
}

/// The outcome is not known, and not because the caller's own limit has passed.
fn is_unknown(error: &Error) -> bool {
    const MAX_TIME_EXPIRED: i32 = 50;
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
        && driver_error::code(error) != Some(MAX_TIME_EXPIRED)
}

/// The transaction is aborted, and may be made again.
fn no_guard() -> LockError {
    labelled(
        TRANSIENT_TRANSACTION_ERROR,
        "no reply to the statement that guards the commit",
    )
    .into()
}

fn none_to_guard(lease: &Lease, reason: &str) -> LockError {
    LockError::NoTransaction {
        name: lease.key.name.to_string(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use crate::{FencingToken, LockGuard, LockProvider};

    /// The tokens of two who waited for a lock, the one after the other.
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

    /// A claim guards the commit. The next hold must not be on the same one while the commit may still be made.
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

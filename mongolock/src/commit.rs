//! Commits that hold only if the lock does.

use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::error::{Error, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lease::Lease;
use crate::store::Touch;
use crate::trace::Loss;
use crate::{LockError, fault};

/// How long a commit is repeated whose outcome is not known.
const COMMIT_LIMIT: Duration = Duration::from_secs(30);

const NOT_BEGUN: &str = "the session has no transaction; start one first, which takes a replica set or a sharded cluster (a \
                         standalone server has no transactions)";
const BEGUN_TOO_EARLY: &str =
    "its transaction began before the lock was acquired, or on another deployment; begin it under the lock";

/// Commits the session's transaction if the lease's claim stands, and ends it in any case.
pub(crate) async fn guarded(lease: &Arc<Lease>, session: &mut ClientSession) -> Result<(), LockError> {
    let sent = Instant::now();
    let renews = lease.is_renewable(sent);
    if let Err(error) = guard(lease, renews, session).await {
        // The first error says what is wrong; the server ends a transaction that is not aborted by itself.
        let _ = session.abort_transaction().await;
        return Err(error);
    }
    commit(lease, session).await?;
    if renews {
        lease.extend(sent);
    }
    Ok(())
}

/// The last statement of the transaction changes the lock's document: from then on until the commit no other can take
/// the lock, and nobody has taken it since the transaction began.
async fn guard(lease: &Arc<Lease>, renews: bool, session: &mut ClientSession) -> Result<(), LockError> {
    lease.ensure_held()?;
    let expiry = renews.then_some(lease.terms.expiry);
    match lease.engine.store.touch(&lease.key, expiry, session).await {
        Ok(Touch::Done) => Ok(()),
        Ok(Touch::Gone) => {
            lease.lose(Loss::Gone);
            Err(lease.lost_error())
        }
        Ok(Touch::Unseen) => Err(none_to_guard(lease, BEGUN_TOO_EARLY)),
        Err(LockError::Mongo(error)) if fault::is_no_transaction(&error) => {
            Err(none_to_guard(lease, NOT_BEGUN))
        }
        Err(error) => Err(error),
    }
}

/// A commit whose outcome is not known may be repeated: it is made once.
async fn commit(lease: &Arc<Lease>, session: &mut ClientSession) -> Result<(), LockError> {
    let until = Instant::now() + COMMIT_LIMIT;
    let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
    loop {
        let Err(error) = session.commit_transaction().await else {
            return Ok(());
        };
        if fault::is_no_transaction(&error) {
            return Err(none_to_guard(lease, NOT_BEGUN));
        }
        let pause = backoff.next();
        if !is_unknown(&error) || Instant::now() + pause >= until {
            return Err(error.into());
        }
        tokio::time::sleep(pause).await;
    }
}

/// The outcome is not known, and not because the caller's own limit has passed.
fn is_unknown(error: &Error) -> bool {
    const MAX_TIME_EXPIRED: i32 = 50;
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && fault::code(error) != Some(MAX_TIME_EXPIRED)
}

fn none_to_guard(lease: &Lease, reason: &str) -> LockError {
    LockError::NoTransaction {
        name: lease.key.name.to_string(),
        reason: reason.to_owned(),
    }
}

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Lease;
use crate::withdrawal::Withdrawal;
use crate::{LockError, LockGuard, fault};

/// How long a caller waits to hear that its release has arrived; it goes on in the background after that.
const ANSWER_LIMIT: Duration = Duration::from_secs(6);

/// Releases a lease and says whether it was held to the end.
pub(crate) async fn release(lease: &Arc<Lease>) -> Result<(), LockError> {
    let Some(deadline) = end(lease) else {
        // Perhaps the claim still stands, but nothing can be learned from it: no reason to wait.
        lease.engine.keeper.withdraw(Withdrawal::of_lease(lease));
        return Err(lease.lost_error());
    };
    if hand_over(lease, deadline) {
        return Ok(());
    }
    let told = tokio::spawn(tell(Arc::clone(lease)));
    match tokio::time::timeout(ANSWER_LIMIT, told).await {
        Ok(Ok(Ok(true))) => Ok(()),
        Ok(Ok(Ok(false))) => Err(lease.lost_error()),
        Ok(Ok(Err(error))) => Err(error),
        Ok(Err(ended)) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down: the lease ends by itself.
            Err(_) => Err(fault::unanswered(ANSWER_LIMIT)),
        },
        Err(_) => Err(fault::unanswered(ANSWER_LIMIT)),
    }
}

/// Releases a lease whose guard was dropped: nobody waits for it, and no runtime need be there.
pub(crate) fn in_background(lease: &Arc<Lease>) {
    let handed_over = end(lease).is_some_and(|deadline| hand_over(lease, deadline));
    if !handed_over {
        lease.engine.keeper.withdraw(Withdrawal::of_lease(lease));
    }
}

fn end(lease: &Arc<Lease>) -> Option<Instant> {
    lease.engine.keeper.forget(lease);
    lease.begin_release()
}

/// Gives the hold to the next caller that waits in this process, without a word to the server; not when the lease is
/// short, when other processes are to have their turn, or when the lock is to stay taken for a minimum time.
fn hand_over(lease: &Arc<Lease>, deadline: Instant) -> bool {
    let long_enough = deadline.saturating_duration_since(Instant::now()) > lease.terms.expiry / 2;
    if !long_enough || !lease.terms.min_hold.is_zero() || lease.engine.is_closed() {
        return false;
    }
    let Some(turn) = lease.take_turn() else {
        return false;
    };
    let next = if turn.others_wait() && turn.streak().goes_on(lease.claimed().elapsed()) {
        lease.successor(deadline)
    } else {
        None
    };
    let Some(next) = next else {
        lease.put_turn(turn);
        return false;
    };
    turn.hand_over(LockGuard::new(Arc::new(next)));
    true
}

/// Whether the claim stood when it was taken back.
async fn tell(lease: Arc<Lease>) -> Result<bool, LockError> {
    let withdrawal = Withdrawal::of_lease(&lease);
    let store = &lease.engine.store;
    match store.release(&withdrawal.key, withdrawal.min_hold).await {
        Err(error) if fault::is_passing(&error) => {
            // A claim that the second command does not find was taken back by the first.
            let again = store
                .release(&withdrawal.key, withdrawal.min_hold)
                .await
                .map(|_| true);
            if again.is_err() {
                lease.engine.keeper.withdraw(withdrawal);
            }
            again
        }
        told => told,
    }
}

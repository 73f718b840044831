use std::sync::Arc;
use std::time::Duration;

use crate::lease::Lease;
use crate::withdrawal::Withdrawal;
use crate::{LockError, fault};

/// How long a caller waits to hear that its release has arrived; it goes on in the background after that.
const ANSWER_LIMIT: Duration = Duration::from_secs(6);

/// Releases a lease and says whether it was held to the end.
pub(crate) async fn release(lease: &Arc<Lease>) -> Result<(), LockError> {
    if !end(lease) {
        // Perhaps the claim still stands, but nothing can be learned from it: no reason to wait.
        lease.engine.keeper.withdraw(Withdrawal::of_lease(lease));
        return Err(lease.lost_error());
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
    end(lease);
    lease.engine.keeper.withdraw(Withdrawal::of_lease(lease));
}

fn end(lease: &Arc<Lease>) -> bool {
    lease.engine.keeper.forget(lease);
    lease.begin_release()
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

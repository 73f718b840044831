//! The completion of a hold whose work has succeeded: the server replaces the claim by a mark instead of releasing it.
//!
//! From the success on, nothing but the mark ends the hold: the request is repeated while the lease lasts, also during a shutdown
//! and after the caller has gone, and the lease is renewed meanwhile ([`Lease::is_renewable`] has the bound). If the server refuses
//! the mark for good, the lock is released.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Lease;
use super::claim_release::ClaimRelease;
use super::release::{self, BegunRelease};
use super::renewer::Renewer;
use super::repeated::{Command, Requests};
use super::state::LeaseState;
use crate::error::failure::HoldEnd;
use crate::protocol::Until;
use crate::store::{MarkReply, MarkRequest, Store, driver_error};
use crate::timing::MARK_LIMIT;
use crate::{LockError, LossReason, task, trace};

/// Begins to complete a lease; the completion goes on if the caller is cancelled. A lease that has ended before is lost.
pub(super) fn begin(renewer: &Arc<Renewer>, lease: &Arc<Lease>, end: Until) -> BegunRelease {
    if !lease.begin_marking() {
        return release::begin(renewer, lease);
    }
    let completing = complete(Completing::begin(renewer, lease), end);
    if renewer.store().never_waits() {
        return BegunRelease::Ended(task::run_at_once(completing).map_err(Box::new));
    }
    BegunRelease::Sent(task::spawn_for_caller(completing))
}

/// A lease whose mark is requested, for which a shutdown waits.
struct Completing {
    renewer: Arc<Renewer>,
    lease: Arc<Lease>,
}

impl Completing {
    fn begin(renewer: &Arc<Renewer>, lease: &Arc<Lease>) -> Self {
        renewer.marking.send_modify(|marking| *marking += 1);
        Self {
            renewer: Arc::clone(renewer),
            lease: Arc::clone(lease),
        }
    }
}

impl Drop for Completing {
    fn drop(&mut self) {
        // The runtime may have ended before the reply.
        self.lease.lose_unmarked(LossReason::Expired);
        self.renewer.marking.send_modify(|marking| *marking -= 1);
    }
}

/// Sends requests until one of them is confirmed, and returns whether the claim had the lock until then.
async fn complete(completing: Completing, end: Until) -> Result<bool, LockError> {
    let Completing { renewer, lease } = &completing;
    lease.begin_claim_release();
    let mut releases = ClaimRelease::of_lease(lease);
    let request = MarkRequest {
        key: lease.key().clone(),
        token: lease.document_token(),
        end,
    };
    let mut requests = Requests::new(renewer, request);
    let failed = |error: &LockError, pause| {
        // The next waiter in this process sends requests of its own, and finds out by itself whether the server works.
        releases.iter_mut().for_each(ClaimRelease::pass_turn_on);
        trace::done_retrying(&lease.fields(), error, pause);
    };
    let error = match requests.reply("mark", || lease.ends_at_server(), failed).await {
        Ok((reply, _)) => {
            let was_held = settle(renewer, lease, reply);
            renewer.released(releases, true);
            return Ok(was_held);
        }
        Err(error) => error,
    };
    trace::done_failed(&lease.fields(), &error);
    renewer.forget(lease);
    if driver_error::is_closed(&error) || lease.ends_at_server() <= Instant::now() {
        return Err(lease.unended(HoldEnd::Mark, Duration::ZERO, error));
    }
    // The work may run again, so there is no reason to keep others waiting.
    let now = Instant::now();
    let due = releases.into_iter().map(|release| release.rescheduled(now));
    renewer.release_in_background(due.collect());
    lease.release_unmarked();
    Err(lease.unended(HoldEnd::Refused, Duration::ZERO, error))
}

/// Ends the lease as a reply says, and returns whether the claim had the lock until then.
fn settle(renewer: &Renewer, lease: &Arc<Lease>, reply: MarkReply) -> bool {
    renewer.forget(lease);
    match reply {
        MarkReply::Marked => {
            lease.complete(LeaseState::Done);
            trace::done(&lease.fields());
        }
        MarkReply::Released => {
            lease.complete(LeaseState::Done);
            trace::released(&lease.fields());
        }
        MarkReply::Gone => lease.lose_unmarked(LossReason::Gone),
    }
    reply != MarkReply::Gone
}

impl Renewer {
    /// Ends a lease whose work a transaction has marked as done.
    pub(crate) fn committed(self: &Arc<Self>, lease: &Arc<Lease>) {
        self.forget(lease);
        let releases = ClaimRelease::of_lease(lease);
        if lease.complete(LeaseState::Done) {
            lease.report(trace::done);
        }
        self.released(releases, true);
    }
}

impl Command for MarkRequest {
    type Reply = MarkReply;

    async fn send(&self, store: &Store) -> Result<MarkReply, LockError> {
        store.mark(self, MARK_LIMIT).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::Few;
    use crate::lease::Part;
    use crate::lease::copies::Copies;
    use crate::lease::tests::{EXPIRY, lease, renewer};
    use crate::options::Options;
    use crate::store::AcquireReply;
    use crate::timing::SLOW_REPLY;

    /// A commit has marked the work, and a late acquire request takes effect before the reply to the commit has come.
    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_acquired_again_during_its_commit_is_released() {
        for is_late in [false, true] {
            let (renewer, copies) = (renewer(), Copies::default());
            copies.sent();
            let mut lease = lease("n", &Options::default());
            let part = Part {
                copies: Some(copies.clone()),
                ..lease.parts[0].clone()
            };
            lease.parts = Few::one(part);
            let acquired = AcquireReply::Acquired {
                last_token: lease.document_token(),
                remaining: None,
                dates: None,
            };
            let answer = || assert!(copies.answered(Instant::now(), [Some(Ok(&acquired))]).is_empty());
            if !is_late {
                answer();
            }
            let mut hold = renewer.hold(lease);
            assert!(hold.lease.begin_commit_with_end());
            if is_late {
                answer();
            }
            renewer.committed(&hold.lease);
            hold.release().await.expect("the hold has ended well");
            assert_eq!(renewer.is_idle(), !is_late);
        }
    }

    /// A renewal that was sent just before the deadline may have been granted without a reply.
    #[tokio::test(start_paused = true)]
    async fn a_claim_may_have_its_lock_for_an_expiry_after_the_end_of_the_lease() {
        let lease = lease("n", &Options::default());
        lease.renewal_sent();
        let instant = Duration::from_millis(1);
        tokio::time::sleep((EXPIRY * 2 + SLOW_REPLY).saturating_sub(instant)).await;
        assert!(lease.ends_at_server() > Instant::now());
        tokio::time::sleep(instant).await;
        assert!(lease.ends_at_server() <= Instant::now());
    }
}

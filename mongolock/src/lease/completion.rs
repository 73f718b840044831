//! The completion of a hold whose work has succeeded: the server replaces the claim by a mark instead of releasing it.
//!
//! From the success on, nothing but the mark ends the hold: the lease is renewed until a reply confirms the mark, also
//! during a shutdown and after the caller has gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::background_release::BackgroundRelease;
use super::release::{self, BegunRelease};
use super::renewer::Renewer;
use super::{Lease, margin};
use crate::backoff::Backoff;
use crate::once::MarkEnd;
use crate::store::{LeaseId, MarkReply, driver_error};
use crate::timing::{MARK_LIMIT, MARK_NO_REPLY, MARK_OVERDUE};
use crate::{LockError, LossReason, task, trace};

type Reply = Result<MarkReply, LockError>;

/// Begins to complete a lease; the completion goes on if the caller is cancelled. A lease that has ended before is lost.
pub(super) fn begin(renewer: &Arc<Renewer>, lease: &Arc<Lease>, end: MarkEnd) -> BegunRelease {
    if !lease.begin_marking() {
        return release::begin(renewer, lease);
    }
    let completing = complete(Arc::clone(renewer), Arc::clone(lease), end);
    if renewer.store().never_waits() {
        return BegunRelease::Ended(task::run_at_once(completing).map_err(Box::new));
    }
    BegunRelease::Sent(task::spawn(completing.in_current_span()))
}

/// Sends requests until one of them is confirmed, and returns whether the claim had the lock until then.
async fn complete(renewer: Arc<Renewer>, lease: Arc<Lease>, end: MarkEnd) -> Result<bool, LockError> {
    lease.begin_claim_release();
    let mut releases = BackgroundRelease::of_lease(&lease, lease.take_slot());
    let mut requests = Requests::new(&renewer, &lease.key, end);
    let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
    loop {
        let (error, pause) = match requests.next().await {
            Some(Ok(reply)) => {
                let was_held = settle(&renewer, &lease, reply, requests.sent > 1);
                renewer.released(&releases, true);
                return Ok(was_held);
            }
            Some(Err(error)) => (error, backoff.next()),
            None => (LockError::no_reply("mark", MARK_OVERDUE), Duration::ZERO),
        };
        // The next waiter in this process sends requests of its own, and finds out by itself whether the server works.
        releases = releases
            .into_iter()
            .map(BackgroundRelease::without_turn)
            .collect();
        if driver_error::forbids_release(&error) || has_ended_at_server(&lease) {
            trace::done_failed(&lease.fields(), &error);
            renewer.forget(&lease);
            lease.lose(LossReason::Expired);
            return Err(error);
        }
        trace::done_retrying(&lease.fields(), &error, pause);
        tokio::time::sleep(pause).await;
    }
}

/// Ends the lease as a reply says, and returns whether the claim had the lock until then.
fn settle(renewer: &Renewer, lease: &Arc<Lease>, reply: MarkReply, is_repeated: bool) -> bool {
    renewer.forget(lease);
    match reply {
        MarkReply::Marked => {
            lease.complete();
            trace::done(&lease.fields());
        }
        // An earlier request may have released the claim at the end of the period.
        MarkReply::Gone { is_over } if !(is_over && is_repeated) => {
            lease.lose(LossReason::Gone);
            return false;
        }
        MarkReply::Released | MarkReply::Gone { .. } => {
            lease.complete();
            trace::released(&lease.fields());
        }
    }
    true
}

/// Whether the claim no longer has the lock at the server, because no renewal was confirmed for so long.
fn has_ended_at_server(lease: &Lease) -> bool {
    let ends = |deadline| deadline + margin(lease.options.expiry) + lease.options.taken_for();
    lease
        .deadline()
        .is_none_or(|deadline| ends(deadline) <= Instant::now())
}

impl Renewer {
    /// Ends a lease whose mark a transaction has written.
    pub(crate) fn completed(self: &Arc<Self>, lease: &Arc<Lease>) {
        self.forget(lease);
        lease.begin_claim_release();
        let releases = BackgroundRelease::of_lease(lease, lease.take_slot());
        lease.complete();
        trace::done(&lease.fields());
        self.released(&releases, true);
    }
}

/// The requests of one completion: copies of one another, each on a task of its own.
struct Requests<'a> {
    renewer: &'a Arc<Renewer>,
    key: &'a LeaseId,
    end: MarkEnd,
    /// The number of requests that were sent.
    sent: u32,
    outcomes: UnboundedReceiver<Option<Reply>>,
    sender: UnboundedSender<Option<Reply>>,
}

impl<'a> Requests<'a> {
    fn new(renewer: &'a Arc<Renewer>, key: &'a LeaseId, end: MarkEnd) -> Self {
        let (sender, outcomes) = unbounded_channel();
        Self {
            renewer,
            key,
            end,
            sent: 0,
            outcomes,
            sender,
        }
    }

    /// Sends a request, and returns the next reply to any of them; `None` if it is overdue.
    async fn next(&mut self) -> Option<Reply> {
        self.sent += 1;
        let store = self.renewer.store();
        if store.never_waits() {
            return Some(store.mark(self.key, self.end, MARK_LIMIT).await);
        }
        let (renewer, key, end) = (Arc::clone(self.renewer), self.key.clone(), self.end);
        let sender = self.sender.clone();
        let request = async move {
            // By then the server has ended the request, and its connection is dead.
            let reply = timeout(MARK_NO_REPLY, renewer.store().mark(&key, end, MARK_LIMIT)).await;
            // Nobody waits for the replies that come after the first good one.
            let _ = sender.send(reply.ok());
        };
        drop(task::spawn(request.in_current_span()));
        let overdue = Instant::now() + MARK_OVERDUE;
        loop {
            let outcome = tokio::time::timeout_at(overdue, self.outcomes.recv())
                .await
                .ok()??;
            if outcome.is_some() {
                return outcome;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::{EXPIRY, lease};
    use crate::options::Options;

    /// A renewal that was sent just before the deadline may have been granted without a reply.
    #[tokio::test(start_paused = true)]
    async fn a_claim_may_have_its_lock_for_an_expiry_after_the_end_of_the_lease() {
        let lease = lease("n", &Options::default());
        let instant = Duration::from_millis(1);
        tokio::time::sleep((EXPIRY * 2).saturating_sub(instant)).await;
        assert!(!has_ended_at_server(&lease));
        tokio::time::sleep(instant).await;
        assert!(has_ended_at_server(&lease));
    }
}

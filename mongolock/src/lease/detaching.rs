//! Detaching a lease: the server replaces the id of its claims by that of a handle, and the lease then lasts without this process.
//!
//! Until the reply the claims are renewed, and a renewal that does not find them says nothing: the request may have replaced
//! them. It decides alone, also during a shutdown. If its outcome stays unknown, or no caller takes the handle, both ids are
//! released, and that of the handle again as long as a copy of the request may take effect.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::claim_release::ClaimRelease;
use super::copies::Copies;
use super::release;
use super::renewer::Renewer;
use super::repeated::{Command, Requests};
use super::state::LeaseState;
use super::{Lease, QueueSlot};
use crate::error::failure::HoldEnd;
use crate::few::Few;
use crate::store::{AcquireReply, ClaimEnd, Claimed, Detachment, LeaseId, Store};
use crate::timing::MARK_LIMIT;
use crate::{LeaseHandle, LockError, LossReason, task, trace};

/// What errors call the request.
const REQUEST: &str = "request to detach";

/// A request that has begun.
pub(super) enum BegunDetaching {
    /// It has ended, because the store never waits.
    Ended(Result<Detaching, Box<LockError>>),
    /// A task sends it.
    Sent(JoinHandle<Result<Detaching, LockError>>),
}

/// A lease that is being detached, or that was detached and whose handle is not delivered. Dropping it releases both ids.
pub(super) struct Detaching {
    renewer: Arc<Renewer>,
    lease: Arc<Lease>,
    /// What is renewed until the reply.
    kept: Arc<Lease>,
    /// The releases of the claims, with their slots in the queues.
    releases: Vec<ClaimRelease>,
    detached: Arc<DetachedClaims>,
}

/// The claims with the id of the handle, for all copies of the request.
struct DetachedClaims {
    /// The claims that they replace.
    keys: Few<LeaseId>,
    detachment: Detachment,
    /// The request makes these claims, as an acquire request makes others.
    copies: Few<Copies>,
}

/// Begins to detach a lease, which ends for its holder at once. The request goes on if the caller is cancelled.
pub(super) fn begin(
    renewer: &Arc<Renewer>,
    lease: &Arc<Lease>,
    handle: &LeaseHandle,
) -> Result<BegunDetaching, LockError> {
    renewer.forget(lease);
    let Some(deadline) = lease.begin_release() else {
        release::after_loss(renewer, lease);
        return Err(lease.lost_error());
    };
    let detaching = Detaching {
        renewer: Arc::clone(renewer),
        lease: Arc::clone(lease),
        releases: ClaimRelease::of_lease(lease),
        kept: renewer.keep_while_detaching(lease, deadline),
        detached: Arc::new(DetachedClaims {
            keys: lease.keys.clone(),
            detachment: Detachment {
                lock_id: Arc::clone(handle.lock_id()),
                ttl: handle.ttl(),
                min_hold: handle.min_hold(),
                tokens: lease.parts.map(|part| part.last_token),
            },
            copies: Copies::of_claims(lease.keys.len() > 1, lease.keys.len()),
        }),
    };
    let sending = detaching.send();
    if renewer.store().never_waits() {
        return Ok(BegunDetaching::Ended(
            task::run_at_once(sending).map_err(Box::new),
        ));
    }
    Ok(BegunDetaching::Sent(task::spawn_for_caller(sending)))
}

/// Waits until the lease is detached. Dropping the future releases it.
pub(super) async fn outcome(begun: BegunDetaching) -> Result<(), LockError> {
    let detached = match begun {
        BegunDetaching::Ended(result) => result.map_err(|error| *error)?,
        BegunDetaching::Sent(sending) => task::joined(sending.await)?,
    };
    detached.deliver();
    Ok(())
}

impl Detaching {
    /// Sends requests until one of them has a reply.
    async fn send(mut self) -> Result<Self, LockError> {
        self.lease.begin_claim_release();
        let (renewer, releases) = (Arc::clone(&self.renewer), &mut self.releases);
        let mut requests = Requests::new(&renewer, Arc::clone(&self.detached));
        let (lease, kept) = (Arc::clone(&self.lease), Arc::clone(&self.kept));
        let failed = |error: &LockError, pause| {
            // The next waiter in this process sends requests of its own, and finds out by itself whether the server works.
            releases.iter_mut().for_each(ClaimRelease::pass_turn_on);
            trace::detach_retrying(&lease.fields(), error, pause);
        };
        let reply = requests.reply(REQUEST, || kept.ends_at_server(), failed).await;
        let Detachment { ttl, min_hold, .. } = self.detached.detachment;
        // A copy without a reply may have been applied.
        let longest = ttl.max(min_hold);
        let reply = reply.map_err(|error| kept.unended(HoldEnd::Detach, longest, error));
        let replies = reply.and_then(|(reply, _)| reply).inspect_err(|_| {
            lease.report(trace::released);
        })?;
        if !replies.iter().all(AcquireReply::is_acquired) {
            self.lease.report_loss(LossReason::Gone);
            self.releases.iter_mut().for_each(ClaimRelease::pass_turn_on);
            return Err(self.lease.lost_error());
        }
        let Detachment { lock_id, ttl, .. } = &self.detached.detachment;
        self.lease.report(|hold| trace::detached(hold, lock_id, *ttl));
        self.stop_renewals();
        // A shutdown waits until the handle is delivered, or released.
        self.releases.iter_mut().for_each(ClaimRelease::pass_turn_on);
        Ok(self)
    }

    fn stop_renewals(&self) {
        self.renewer.forget(&self.kept);
        self.kept.complete(LeaseState::Released);
    }

    fn deliver(mut self) {
        self.renewer.replaced(std::mem::take(&mut self.releases));
    }
}

impl Drop for Detaching {
    fn drop(&mut self) {
        self.stop_renewals();
        if self.releases.is_empty() {
            return;
        }
        // One command ends both ids of a lock: a copy of the request that takes effect between two would leave one of them.
        let now = Instant::now();
        let releases = std::mem::take(&mut self.releases).into_iter();
        let mut releases: Vec<ClaimRelease> = releases.map(|release| release.rescheduled(now)).collect();
        for index in 0..self.detached.keys.len() {
            if self.detached.copies[index].give_up() {
                let slot = releases[index].entry();
                releases.push(self.detached.release(index, slot, true).rescheduled(now));
            }
        }
        self.renewer.release_in_background(releases);
    }
}

impl DetachedClaims {
    fn release(&self, index: usize, slot: QueueSlot, repeats: bool) -> ClaimRelease {
        let Detachment {
            lock_id,
            ttl,
            min_hold,
            ..
        } = &self.detachment;
        let end = ClaimEnd::Released { min_hold: *min_hold };
        let copies = repeats.then(|| self.copies[index].clone());
        let key = self.keys[index].with_id(lock_id);
        ClaimRelease::of_claim(key, end, *ttl, slot, copies, false)
    }

    /// Whether one of the claims of a set has its lock still. The query about a set shows no write that a majority has not
    /// confirmed.
    fn is_unconfirmed(&self, replies: &[AcquireReply]) -> bool {
        let mut of_set = replies.iter().zip(&*self.keys);
        let has_lock = |(reply, key): (&AcquireReply, &LeaseId)| {
            let holder = match reply {
                AcquireReply::Held { holder, .. } => holder.as_ref(),
                AcquireReply::Acquired { .. } => None,
            };
            holder == Some(&key.lock_id)
        };
        self.keys.len() > 1 && of_set.any(has_lock)
    }
}

impl Command for Arc<DetachedClaims> {
    type Reply = Claimed;

    async fn send(&self, store: &Store) -> Result<Claimed, LockError> {
        let replies = store.detach(&self.keys, &self.detachment, MARK_LIMIT).await?;
        if replies.as_ref().is_ok_and(|replies| self.is_unconfirmed(replies)) {
            return Err(LockError::no_reply(REQUEST, MARK_LIMIT));
        }
        Ok(replies)
    }

    fn sent(&self) {
        self.copies[0].sent();
    }

    fn ended(&self, renewer: &Arc<Renewer>, sent: Instant, reply: Option<&Result<Claimed, LockError>>) {
        let due = self.copies[0].note(sent, self.keys.len(), reply);
        if !due.is_empty() {
            let repeats = self.keys.len() > 1;
            let releases = due.into_iter();
            let releases = releases.map(|index| self.release(index, QueueSlot::Nothing, repeats));
            renewer.release_in_background(releases.collect());
        }
    }
}

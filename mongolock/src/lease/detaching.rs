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
use crate::few::Few;
use crate::store::{AcquireReply, ClaimEnd, Claimed, Detachment, LeaseId, Store};
use crate::timing::{MARK_LIMIT, RELEASE_NO_REPLY, RELEASE_REPLY_LIMIT};
use crate::{LeaseHandle, LockError, LossReason, task, trace};

/// A request that has begun.
pub(super) enum BegunDetaching {
    /// It has ended, because the store never waits.
    Ended(Result<Detached, Box<LockError>>),
    /// A task sends it.
    Sent(JoinHandle<Result<Detached, LockError>>),
}

/// A lease that was detached. It is released when this is dropped before its handle is delivered.
pub(super) struct Detached {
    renewer: Arc<Renewer>,
    lease: Arc<Detaching>,
    is_delivered: bool,
}

/// The claims of a detached lease, for all copies of the request.
struct Detaching {
    keys: Few<LeaseId>,
    detachment: Detachment,
    /// The request makes the claims with the id of the handle, as an acquire request makes others.
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
    let detachment = Detachment {
        lock_id: Arc::clone(handle.lock_id()),
        ttl: handle.ttl(),
        min_hold: handle.min_hold(),
        tokens: lease.parts.map(|part| part.last_token),
    };
    let releases = ClaimRelease::of_lease(lease);
    let kept = renewer.keep_while_detaching(lease, deadline);
    let detaching = detach(Arc::clone(renewer), Arc::clone(lease), kept, releases, detachment);
    if renewer.store().never_waits() {
        return Ok(BegunDetaching::Ended(
            task::run_at_once(detaching).map_err(Box::new),
        ));
    }
    Ok(BegunDetaching::Sent(task::spawn_for_caller(detaching)))
}

/// Waits until the lease is detached. Dropping the future releases it.
pub(super) async fn outcome(begun: BegunDetaching) -> Result<(), LockError> {
    let detached = match begun {
        BegunDetaching::Ended(result) => result.map_err(|error| *error)?,
        BegunDetaching::Sent(sending) => {
            task::wait_for_reply(sending, "request to detach", RELEASE_REPLY_LIMIT).await?
        }
    };
    detached.deliver();
    Ok(())
}

/// Sends requests until one of them has a reply. `kept` is what is renewed meanwhile.
async fn detach(
    renewer: Arc<Renewer>,
    lease: Arc<Lease>,
    kept: Arc<Lease>,
    mut releases: Vec<ClaimRelease>,
    detachment: Detachment,
) -> Result<Detached, LockError> {
    lease.begin_claim_release();
    let detaching = Arc::new(Detaching {
        copies: match lease.keys() {
            [_] => Few::one(Copies::default()),
            keys => Few::from(Copies::of_set(keys.len())),
        },
        keys: lease.keys.clone(),
        detachment,
    });
    let mut requests = Requests::new(&renewer, Arc::clone(&detaching));
    let reply = requests.reply("request to detach", RELEASE_NO_REPLY, || {
        // The next waiter in this process sends requests of its own, and finds out by itself whether the server works.
        releases.iter_mut().for_each(ClaimRelease::pass_turn_on);
    });
    let reply = reply.await.and_then(|(reply, _)| reply);
    renewer.forget(&kept);
    kept.complete(LeaseState::Released);
    let error = match reply {
        Ok(replies) if replies.iter().all(AcquireReply::is_acquired) => {
            let Detachment { lock_id, ttl, .. } = &detaching.detachment;
            lease.report(|hold| trace::detached(hold, lock_id, *ttl));
            renewer.replaced(releases);
            return Ok(Detached {
                renewer,
                lease: detaching,
                is_delivered: false,
            });
        }
        Ok(_) => {
            lease.report_loss(LossReason::Gone);
            lease.lost_error()
        }
        Err(error) => error,
    };
    let now = Instant::now();
    let mut left: Vec<ClaimRelease> = releases.into_iter().map(|release| release.alone(now)).collect();
    left.extend(detaching.given_up());
    renewer.release_in_background(left);
    Err(error)
}

impl Detached {
    fn deliver(mut self) {
        self.is_delivered = true;
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.renewer.release_in_background(self.lease.given_up());
        }
    }
}

impl Detaching {
    /// The releases of the claims with the id of the handle that may have their locks, now or later.
    fn given_up(&self) -> Vec<ClaimRelease> {
        let claims = (0..self.keys.len()).filter(|index| self.copies[*index].give_up());
        claims.map(|index| self.release(index, true)).collect()
    }

    fn release(&self, index: usize, repeats: bool) -> ClaimRelease {
        let Detachment {
            lock_id,
            ttl,
            min_hold,
            ..
        } = &self.detachment;
        let end = ClaimEnd::Released { min_hold: *min_hold };
        let copies = repeats.then(|| self.copies[index].clone());
        let key = self.keys[index].with_id(lock_id);
        ClaimRelease::of_claim(key, end, *ttl, QueueSlot::Nothing, copies, false)
    }
}

/// Whether this claim has its lock still, by a reply to another one.
fn has(reply: &AcquireReply, key: &LeaseId) -> bool {
    matches!(reply, AcquireReply::Held { holder: Some(holder), .. } if *holder == key.lock_id)
}

impl Command for Arc<Detaching> {
    type Reply = Claimed;

    async fn send(&self, store: &Store) -> Result<Claimed, LockError> {
        let replies = store.detach(&self.keys, &self.detachment, MARK_LIMIT).await?;
        if let Ok(replies) = &replies
            && replies
                .iter()
                .zip(&*self.keys)
                .any(|(reply, key)| has(reply, key))
        {
            // The query about a set shows no write that a majority has not confirmed.
            return Err(LockError::no_reply("request to detach", MARK_LIMIT));
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
            let releases = due.into_iter().map(|index| self.release(index, repeats));
            renewer.release_in_background(releases.collect());
        }
    }
}

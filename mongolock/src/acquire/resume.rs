//! Resuming a detached lease: a claim on the lease that the id of a handle has, and not on a free lock. It is a single try.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout_at};
use tracing::Span;

use super::asking::Held;
use super::call::{Call, Search};
use super::claim::Claim;
use super::target::{Resumption, Target};
use super::{Next, Tried};
use crate::engine::Engine;
use crate::few::Few;
use crate::lease::claim_release::ClaimRelease;
use crate::lease::{Entry, Hold, QueueSlot};
use crate::moment::Luck;
use crate::name::RenderedName;
use crate::options::{OnBusy, Options};
use crate::store::{ClaimEnd, LeaseId};
use crate::{LeaseHandle, LockError, LossReason, permit_id, trace};

/// One call that resumes a lease.
pub(crate) struct Resume<'a> {
    call: Call<'a>,
    handle: &'a LeaseHandle,
}

impl Search for Resume<'_> {
    type Queues = Vec<Arc<Entry>>;
    type Begun = ();

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn span(&self) -> Span {
        trace::resume_span(self.handle.name(), self.handle.owner())
    }

    fn join(&self) -> Vec<Arc<Entry>> {
        let queues = &self.call.engine.queues;
        let join = |id: &Arc<str>| queues.join(&Arc::from(permit_id::awaited(id)));
        self.handle.ids().iter().map(join).collect()
    }

    fn awaited<'s>(&'s self, entries: &'s Vec<Arc<Entry>>) -> (&'s Arc<str>, &'s Arc<Entry>) {
        let entry = &entries[self.handle.title()];
        (entry.name(), entry)
    }

    async fn search(&self, entries: &Vec<Arc<Entry>>, (): ()) -> Result<Tried, LockError> {
        let mut last_error = None;
        let resuming = self.resume(entries, &mut last_error);
        let resumed = match self.call.deadline {
            Some(deadline) => timeout_at(deadline, resuming).await.ok(),
            None => Some(resuming.await),
        };
        match resumed {
            Some(resumed) => resumed.map(Ok),
            None => Err(last_error.unwrap_or_else(|| self.unanswered())),
        }
    }
}

impl<'a> Resume<'a> {
    pub(crate) fn resumption(
        engine: &'a Arc<Engine>,
        name: &'a RenderedName,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
        handle: &'a LeaseHandle,
    ) -> Self {
        let call = Call::new(engine, name, options, is_inside_hold, OnBusy::TryOnce);
        Self { call, handle }
    }

    /// Sends requests until a reply says who has the lease. Dropping the future gives the lease back.
    async fn resume(
        &self,
        entries: &[Arc<Entry>],
        last_error: &mut Option<LockError>,
    ) -> Result<Hold, LockError> {
        let (call, entry) = (&self.call, &entries[self.handle.title()]);
        let lease = Arc::new(Resumption::new(self.handle.clone()));
        let queues = Few::collected(entries.iter().cloned());
        let target = Target::Detached(Arc::clone(&lease));
        let mut claim = Claim::new(call, call.first_class(), target, queues);
        let mut backoff = call.engine.backoff();
        let mut met = None;
        let mut outcome = claim.request().await;
        loop {
            outcome = match call.next_after(entry, &mut claim, outcome).await {
                Next::Deliver(hold) => {
                    hold.deliver(None, call.meter.as_ref());
                    return Ok(hold);
                }
                Next::Again => claim.request().await,
                // Another call has given the lease back since the command has come to this lock.
                Next::Held(held) if self.runs(&held) => {
                    let pause = backoff.next(Luck::draw());
                    claim.outcome_after(pin!(sleep(pause))).await
                }
                Next::Held(held) if self.may_be_back(&held, &mut met) => claim.request().await,
                Next::Held(held) => {
                    if claim.has_rest() {
                        lease.note_broken();
                        self.release_all(entries);
                    }
                    return Err(self.lost(&held));
                }
                Next::ClaimAnew => return Err(self.unanswered()),
                Next::Pause(error) | Next::Leave(error) => {
                    let pause = backoff.next(Luck::draw());
                    if let Some(error) = error {
                        trace::retrying(self.handle.name(), &error, pause);
                        *last_error = Some(error);
                    }
                    claim.outcome_after(pin!(sleep(pause))).await
                }
                Next::End(error) => return Err(error),
                Next::Stop => return Err(call.shut_down_error()),
            };
        }
    }

    /// Whether a reply has found, for the first time, a claim of this provider: it may be that of another call that was given up, and
    /// may have given the lease back since.
    fn may_be_back(&self, found: &Held, met: &mut Option<Arc<str>>) -> bool {
        let own = found
            .holder
            .lock_id()
            .filter(|id| self.call.engine.mark.is_in(id));
        let is_new = own.is_some() && own != met.as_ref();
        *met = own.cloned();
        is_new
    }

    /// Whether a reply has found the id of the handle, and that its lease runs.
    fn runs(&self, found: &Held) -> bool {
        let left = found.holder.remaining(Instant::now());
        found.holder.lock_id() == Some(self.handle.lock_id()) && left.is_some_and(|left| !left.is_zero())
    }

    /// The error of a call that has found another id in the document, or the id of the handle after the end of its lease.
    fn lost(&self, found: &Held) -> LockError {
        let is_own = found.holder.lock_id() == Some(self.handle.lock_id());
        let reason = if is_own {
            LossReason::Expired
        } else {
            LossReason::Gone
        };
        LockError::lost(self.handle.name(), self.handle.fencing_token(), reason)
    }

    /// Releases what a lease still has that has lost some of its locks. The claim releases what it has got of it.
    fn release_all(&self, entries: &[Arc<Entry>]) {
        let handle = self.handle;
        let release = |(key, entry): (&LeaseId, &Arc<Entry>)| {
            let end = ClaimEnd::Released {
                min_hold: handle.min_hold(),
            };
            let slot = QueueSlot::Entry {
                entry: Arc::clone(entry),
            };
            ClaimRelease::of_claim(key.clone(), end, handle.ttl(), slot, None, false)
        };
        let keys = LeaseId::of_handle(handle);
        let releases = keys.iter().zip(entries).map(release).collect();
        self.call.engine.renewer.release_in_background(releases);
    }

    fn unanswered(&self) -> LockError {
        let waited = Instant::now() - self.call.begun;
        self.call.engine.store.unanswered("request to resume", waited)
    }
}

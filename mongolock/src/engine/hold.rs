//! The hold of a guard, which must be ended, and how it ends.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use super::after;
use super::clock::duration;
use super::faults::error_of;
use super::state::{Event, How, Lease, Step};
use crate::core::{EndResult, Ended, Ending, FaultKind, Time};
use crate::error::meaning::{Meaning, OwnFailure};
use crate::meter::Measure;
use crate::store::millis;
use crate::sync::lock;
use crate::{LeaseHandle, LockError, trace};

/// A hold that must be ended: dropping it releases the lock in the background.
pub(crate) struct Hold {
    lease: Arc<Lease>,
    duty: Duty,
    /// The thread of a blocking provider.
    _keeper: Option<Arc<dyn Any + Send + Sync>>,
}

/// What a guard still has to do when it is dropped.
enum Duty {
    Release,
    /// The hold is being detached with this id, and no caller will get the handle: the lease must be released.
    Discard(Arc<str>),
    Nothing,
}

impl Hold {
    pub(super) fn new(lease: Arc<Lease>) -> Self {
        lease.meter.record(Measure::HoldBegins);
        Self {
            _keeper: lease.engine.keeper.get().and_then(Weak::upgrade),
            lease,
            duty: Duty::Release,
        }
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Releases the lock and waits for the server's reply. Cancel safe: once polled, the release continues in the
    /// background.
    pub(crate) async fn release(&mut self) -> Result<(), LockError> {
        self.end(Ending::Release, Duty::Nothing).await
    }

    /// Ends a hold whose work has succeeded and may succeed only once, and waits for the server's reply: the lock is marked as
    /// done. Cancel safe: once polled, the mark is made in the background.
    pub(crate) async fn mark(&mut self) -> Result<(), LockError> {
        self.end(Ending::Done, Duty::Nothing).await
    }

    /// Gives the lease the id of this handle, and waits for the server's reply. Once polled, dropping the future releases the lock.
    pub(crate) async fn detach(&mut self, handle: &LeaseHandle) -> Result<(), LockError> {
        if self.lease.has_ended() {
            self.duty = Duty::Nothing;
            return Err(self.lease.lost_error());
        }
        let ids = self.lease.keys().iter().map(|_| Arc::clone(handle.lock_id()));
        let ending = Ending::Detach(ids.collect(), millis(handle.lease().ttl));
        let discard = Duty::Discard(Arc::clone(handle.lock_id()));
        // After an error a part of it may be detached, or may be yet.
        self.end(ending, discard).await?;
        self.duty = Duty::Nothing;
        let owner = Some(handle.owner());
        self.lease.report(|hold| trace::released(hold, "detached", owner));
        Ok(())
    }

    /// Ends the hold, and keeps this duty until it has ended.
    async fn end(&mut self, ending: Ending, duty: Duty) -> Result<(), LockError> {
        self.duty = duty;
        if self.lease.engine.is_forked() {
            return Err(Meaning::Forked.error());
        }
        let how = How::of(&ending);
        let begun = self.lease.end(ending);
        let ended = self.lease.until_ended().await;
        unended(&self.lease, how, ended, begun)
    }

    /// Releases the lock without waiting for the server's reply. An error means that the lease had ended before.
    pub(crate) fn release_unawaited(&mut self) -> Result<(), LockError> {
        let ended = if self.lease.has_ended() {
            Ok(())
        } else {
            self.lease.ensure_held()
        };
        self.end_in_background();
        ended
    }

    fn end_in_background(&mut self) {
        match std::mem::replace(&mut self.duty, Duty::Nothing) {
            Duty::Nothing => {}
            _ if self.lease.engine.is_forked() => {}
            Duty::Release => {
                self.lease.end(Ending::Release);
            }
            Duty::Discard(id) => self.lease.discard(id),
        }
    }
}

impl Lease {
    /// The holder ends the hold. Returns the time.
    fn end(self: &Arc<Self>, ending: Ending) -> Time {
        let now = {
            let (state, now) = (&mut *lock(&self.state), self.engine.now());
            if let Step::Held { until, .. } = state.step {
                if let Some(until) = until.filter(|_| state.step.left(now) > 0) {
                    state.step = Step::Ending(How::of(&ending), until, None);
                }
                after::wake(&mut state.wakers);
            }
            now
        };
        let awaited = Some(Arc::clone(self));
        self.engine.take(Event::End(self.granted().hold, ending, awaited));
        now
    }

    /// How the hold has ended.
    async fn until_ended(&self) -> EndResult {
        self.until(|state| match &state.step {
            Step::Lost(_) => Some(Ok(Ended::Lost)),
            Step::Ended(ended) => Some(ended.clone()),
            _ => None,
        })
        .await
    }

    /// No caller will get the handle with this id, to which the hold is being detached: the lease is ended when it has
    /// the id.
    fn discard(self: &Arc<Self>, id: Arc<str>) {
        if let Step::Ending(_, _, discards) = &mut lock(&self.state).step {
            *discards = Some(id);
            return;
        }
        self.engine.take(self.discarded(&id));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end_in_background();
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.lease.name())
            .field("fencing_token", &self.lease.token().if_any())
            .field("remaining", &self.lease.remaining())
            .finish_non_exhaustive()
    }
}

/// The error of a hold whose end its holder has asked for at this time, if it has not ended well.
fn unended(lease: &Lease, how: How, ended: EndResult, begun: Time) -> Result<(), LockError> {
    let fault = match ended {
        Ok(Ended::Lost) => return Err(lease.lost_error()),
        Ok(_) => return Ok(()),
        Err(fault) => fault,
    };
    let (engine, request) = (&lease.engine, how.as_str());
    let no_reply = || engine.store.no_reply(request, duration(engine.now() - begun));
    let source = fault.as_ref().map_or_else(no_reply, error_of);
    if how == How::Release {
        return Err(source);
    }
    let is_refused = how == How::Mark && fault.is_some_and(|fault| fault.kind == FaultKind::Refused);
    let left = (!is_refused).then_some(lease.about.options.expiry);
    Err(OwnFailure::unended(request, lease.name(), left, source))
}

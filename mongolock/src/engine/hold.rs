//! The duty of a guard to end its hold.

use std::sync::Arc;

use super::after::After;
use super::lease::{How, Lease};
use super::shared::Engine;
use super::words;
use crate::core::{Ending, Event};
use crate::error::failure::Failure;
use crate::store::millis;
use crate::{LeaseHandle, LockError, trace};

/// A hold and the duty to end it: dropping it releases it in the background.
pub(crate) struct Hold {
    lease: Arc<Lease>,
    engine: Arc<Engine>,
    is_ended: bool,
}

impl Hold {
    pub(super) fn new(lease: Arc<Lease>, engine: Arc<Engine>) -> Self {
        lease.meter().hold_begins();
        Self {
            lease,
            engine,
            is_ended: false,
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Releases the lock and waits for the server's reply. Cancel safe: once polled, the release goes on.
    pub(crate) async fn release(&mut self) -> Result<(), LockError> {
        self.end(How::Release, Ending::Release).await
    }

    /// Ends a hold whose work has succeeded, and waits for the server's reply: the lock is marked as done if the work may
    /// succeed only once, and otherwise released. Cancel safe: once polled, the completion goes on.
    pub(crate) async fn complete(&mut self) -> Result<(), LockError> {
        if self.lease.is_once() {
            self.end(How::Mark, Ending::Done).await
        } else {
            self.release().await
        }
    }

    /// Gives the lease the id of this handle, and waits for the server's reply. Once polled, dropping the future releases the lock.
    pub(crate) async fn detach(&mut self, handle: &LeaseHandle) -> Result<(), LockError> {
        if self.lease.has_ended_well() {
            self.is_ended = true;
            return Err(self.lease.lost_error());
        }
        let ids = self.lease.keys().iter().map(|_| Arc::clone(handle.lock_id()));
        let ending = Ending::Detach(ids.collect(), millis(handle.ttl()));
        let (engine, lease) = (Arc::clone(&self.engine), Arc::clone(&self.lease));
        let mut detaching = Detaching(Some((engine, lease, Arc::clone(handle.lock_id()))));
        let ended = self.end(How::Detach, ending).await;
        detaching.0 = None;
        if ended.is_ok() {
            let (id, ttl) = (handle.lock_id(), handle.ttl());
            self.lease.report(|hold| trace::detached(hold, id, ttl));
        }
        ended
    }

    async fn end(&mut self, how: How, ending: Ending) -> Result<(), LockError> {
        self.is_ended = true;
        if self.engine.is_forked() {
            return Err(Failure::Forked.into_error());
        }
        if self.lease.has_ended_well() {
            return Ok(());
        }
        let begun = self.engine.now();
        self.begin_end(how, ending);
        let ended = self.lease.until_ended().await;
        let error = words::unended(&self.engine, &self.lease, how, ended, begun);
        error.map_or(Ok(()), Err)
    }

    fn begin_end(&self, how: How, ending: Ending) {
        let mut after = After::default();
        self.lease.begin_end(how, &mut after);
        let awaited = Some(Arc::clone(&self.lease));
        self.engine.apply(Event::End(self.lease.hold(), ending, awaited));
        after.run();
    }

    /// Releases the lock without waiting for the server's reply. An error says that the lease had ended before.
    pub(crate) fn release_unawaited(&mut self) -> Result<(), LockError> {
        let ended = if self.lease.has_ended_well() {
            Ok(())
        } else {
            self.lease.ensure_held()
        };
        self.release_in_background();
        ended
    }

    fn release_in_background(&mut self) {
        let is_left = !self.is_ended && !self.engine.is_forked();
        if is_left && !self.lease.has_ended_well() {
            self.begin_end(How::Release, Ending::Release);
        }
        self.is_ended = true;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release_in_background();
    }
}

/// A detachment whose caller may go: nobody has the handle then.
struct Detaching(Option<(Arc<Engine>, Arc<Lease>, Arc<str>)>);

impl Drop for Detaching {
    fn drop(&mut self) {
        if let Some((engine, lease, id)) = &self.0
            && let Some(event) = lease.discard_detached(id)
        {
            engine.apply(event);
        }
    }
}

//! Detached leases, and the calls with their handles.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::calls::Call;
use super::holds::{Facts, Guard, begins};
use super::millis;
use super::plan::Work;
use super::process::Process;
use super::work::Caller;
use super::world::World;
use crate::protocol::{Ms, Name};
use crate::sync::lock;
use crate::{LeaseHandle, LockError};

/// A lease that was detached, and what is known about it.
pub(super) struct Detached {
    handle: LeaseHandle,
    names: Vec<Name>,
    called: Ms,
    /// The lease lasts at least until this time.
    until: Mutex<Instant>,
    /// The number of calls that have begun to resume or to release it, and the number that have resumed it.
    uses: AtomicU32,
    resumed: AtomicU32,
}

impl Detached {
    /// Whether the lease lasts, and this number of calls have used the handle.
    fn lasts(&self, uses: u32) -> bool {
        self.uses.load(Relaxed) == uses && *lock(&self.until) > Instant::now()
    }
}

impl Facts {
    /// Detaches the lease. The caller drops the future after this time.
    pub(super) async fn detach(&self, guard: Guard, patience: Duration) {
        let (ttl, world) = (millis(500..=15_000), self.process.world());
        let (until, begun) = (Instant::now() + ttl, world.memory.now());
        let detaching = match guard {
            Guard::Lock(guard) => guard.detach(ttl),
            Guard::Permit(permit) => permit.detach(ttl),
        };
        let Ok(outcome) = timeout(patience, detaching.into_future()).await else {
            return;
        };
        self.judge_end(outcome.as_ref().err(), begun);
        let Ok(handle) = outcome else { return };
        let detached = Arc::new(Detached {
            handle,
            names: self.names.clone(),
            called: self.called,
            until: Mutex::new(until),
            uses: AtomicU32::new(0),
            resumed: AtomicU32::new(0),
        });
        let lease = Arc::clone(&detached);
        let lasts = Box::new(move || lease.lasts(0));
        begins(world, "a detached lease", self.called, &self.names, lasts);
        lock(&world.handles).push(detached);
    }
}

impl Caller {
    /// Makes a call with a handle of this or another process.
    pub(super) async fn uses_handle(&self) {
        let detached = {
            let handles = lock(&self.0.world().handles);
            let last = handles.len().saturating_sub(4);
            fastrand::choice(&handles[last..]).cloned()
        };
        let Some(detached) = detached else { return };
        match fastrand::u8(0..4) {
            0 => self.extends(&detached).await,
            1 => self.releases(&detached).await,
            _ => self.resumes(&detached).await,
        }
    }

    async fn extends(&self, detached: &Detached) {
        let ttl = millis(500..=10_000);
        let (begun, until) = (self.0.world().memory.now(), Instant::now() + ttl);
        let extended = self.0.provider.extend(&detached.handle, ttl).await;
        self.check_found(detached, 0, begun, "extends", extended.as_ref().map(|_| true));
        if extended.is_ok() {
            let least = &mut *lock(&detached.until);
            *least = until.max(*least);
        }
    }

    async fn releases(&self, detached: &Detached) {
        let begun = self.0.world().memory.now();
        detached.uses.fetch_add(1, Relaxed);
        let released = self.0.provider.release(&detached.handle).await;
        let found = released.as_ref().map(|found| *found);
        self.check_found(detached, 1, begun, "releases", found);
    }

    async fn resumes(&self, detached: &Detached) {
        let mut wish = self.wish(Work::Handle);
        (wish.max_hold, wish.min_hold) = (None, Duration::ZERO);
        let (process, call) = (&self.0, Call::begin(&self.0, wish));
        detached.uses.fetch_add(1, Relaxed);
        let (provider, handle) = (&process.provider, &detached.handle);
        let resuming = async {
            match handle.permit() {
                Some(_) => provider.resume_permit(handle).await.map(Guard::from),
                None => provider.resume(handle).await.map(Guard::from),
            }
        };
        let Ok(resumed) = timeout(call.wish.patience, resuming).await else {
            return;
        };
        let found = resumed.as_ref().map(|_| true);
        self.check_found(detached, 1, call.called, "resumes", found);
        let Ok(guard) = resumed else { return };
        let before = detached.resumed.fetch_add(1, Relaxed);
        process
            .world()
            .check_sound(before == 0, || format!("{:?} is resumed twice", detached.names));
        self.holds(call, guard).await;
    }

    /// A call with a handle that no other call has used must find its lease while the lease lasts.
    fn check_found(
        &self,
        detached: &Detached,
        uses: u32,
        begun: Ms,
        what: &str,
        found: Result<bool, &LockError>,
    ) {
        let (world, names, number) = (self.0.world(), &detached.names, self.0.line.number);
        world.note(|| format!("{number} {what} a lease of {names:?}: {found:?}"));
        let was_forced = |name| world.ledger().was_forced(name, detached.called);
        let must_be_found = detached.lasts(uses) && !names.iter().any(was_forced);
        let fits = match found {
            Ok(true) => true,
            Ok(false) | Err(LockError::Lost { .. }) => !must_be_found,
            Err(error) => self.0.may_fail(begun, error),
        };
        world.check_sound(fits, || {
            format!("{number} {what} a lease of {names:?}: {found:?}")
        });
    }
}

/// Releases all leases that are still detached.
pub(super) async fn release_all(world: &World, last: &[Arc<Process>]) {
    let Some(process) = last.first() else { return };
    let handles = std::mem::take(&mut *lock(&world.handles));
    for detached in handles {
        let released = process.provider.release(&detached.handle).await;
        world.check(released.is_ok(), || {
            format!("a handle is not released in the end: {released:?}")
        });
    }
}

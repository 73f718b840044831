//! Callers that detach their holds, and others in any process that resume, extend and release them by their handles.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::worker::Worker;
use super::{between, chance};
use crate::sync::lock;
use crate::{Detach, LeaseHandle, LockContext, LockError, LockGuard, Permit};

/// The tolerance for times: the server's times are whole milliseconds.
const BLUR: Duration = Duration::from_millis(50);

/// The shortest and the longest time of a detached lease in milliseconds.
const TTL: (u64, u64) = (200, 8000);

/// The handles that callers have stored, as in cookies or files: they outlive the processes.
#[derive(Default)]
pub(super) struct Handles {
    stored: Mutex<Vec<Stored>>,
    /// The ids of the leases that were resumed.
    resumed: Mutex<HashSet<Arc<str>>>,
    /// The numbers of leases that were detached, resumed, extended and released, of resumptions that were given up, and of
    /// processes that were killed.
    pub(super) counts: [AtomicU64; 6],
}

/// A stored handle.
#[derive(Clone)]
struct Stored {
    handle: LeaseHandle,
    /// The time until which the lease surely lasts, unless somebody else uses the handle; `None` if that is not known.
    certain_until: Option<Instant>,
}

/// What a call holds.
enum Held {
    Lock(LockGuard),
    Permit(Permit),
}

impl Handles {
    fn store(&self, stored: Stored) {
        lock(&self.stored).push(stored);
    }

    pub(super) fn process_killed(&self) {
        self.count(5);
    }

    fn count(&self, what: usize) {
        self.counts[what].fetch_add(1, Relaxed);
    }
}

impl Worker {
    /// Uses a stored handle, or acquires something that it may detach.
    pub(super) async fn call_with_handles(&mut self) -> Result<(), LockError> {
        if self.rng.bool()
            && let Some(stored) = self.take_handle()
        {
            return self.use_handle(stored).await;
        }
        let held = self.acquire_any().await;
        match held {
            Ok(Some(held)) => self.hold_and_end(held).await,
            Ok(None) | Err(LockError::Timeout { .. } | LockError::Mongo(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn handles(&self) -> &Handles {
        &self.world.server.handles
    }

    /// Takes a stored handle. Some callers copy it, so that two use it at a time.
    fn take_handle(&mut self) -> Option<Stored> {
        let mut stored = lock(&self.world.server.handles.stored);
        let index = self.rng.usize(..stored.len().max(1));
        if chance(&mut self.rng, 150) {
            let shared = stored.get_mut(index)?;
            // Each of the two finds out by itself what the other one has done.
            shared.certain_until = None;
            return Some(shared.clone());
        }
        (index < stored.len()).then(|| stored.swap_remove(index))
    }

    async fn acquire_any(&mut self) -> Result<Option<Held>, LockError> {
        let (plan, rng) = (&self.world.plan, &mut self.rng);
        let limit = between(rng, 0, 6000);
        let name = rng.usize(0..plan.names);
        let expiry = plan.least_expiry() + between(rng, 1000, 5000);
        match rng.u8(0..10) {
            0..5 => {
                let lock = self.provider.lock(name).expiry(expiry).acquire_timeout(limit);
                Ok(Some(Held::Lock(lock.acquire().await?)))
            }
            5..8 => {
                let mut names: Vec<usize> = (0..plan.names).collect();
                rng.shuffle(&mut names);
                names.truncate(rng.usize(2..=plan.names.max(2)));
                let set = self.provider.lock_all(names).expiry(expiry);
                Ok(Some(Held::Lock(set.acquire_timeout(limit).acquire().await?)))
            }
            _ => {
                let semaphore = self.provider.semaphore(name, plan.permits).expiry(expiry);
                let permit = semaphore.acquire_timeout(limit).try_acquire().await?;
                Ok(permit.map(Held::Permit))
            }
        }
    }

    async fn hold_and_end(&mut self, held: Held) -> Result<(), LockError> {
        let context = held.context();
        let _present = self.begin(&context);
        sleep(between(&mut self.rng, 0, self.world.plan.usual_hold)).await;
        self.world.note_progress();
        drop(context);
        match self.rng.u8(0..10) {
            0 => {
                drop(held);
                Ok(())
            }
            1 | 2 => {
                // A loss has its reasons, which other scenarios judge.
                let _ = held.release().await;
                Ok(())
            }
            _ => self.detach(held).await,
        }
    }

    /// Detaches a hold; some callers store the handle first, and some give up.
    async fn detach(&mut self, held: Held) -> Result<(), LockError> {
        let (begun, (least, most)) = (Instant::now(), TTL);
        let ttl = between(&mut self.rng, least, most);
        let names = held.names();
        let detaching = held.detach(ttl).owner(format!("s{}", self.rng.u16(..)));
        let handle = detaching.handle();
        let is_stored_first = self.rng.bool();
        if is_stored_first {
            self.handles().store(Stored {
                handle: handle.clone(),
                certain_until: None,
            });
        }
        let patience = chance(&mut self.rng, 150).then(|| between(&mut self.rng, 0, 3000));
        let detached = match patience {
            Some(patience) => timeout(patience, detaching.into_future()).await.ok(),
            None => Some(detaching.await),
        };
        match detached {
            None => Ok(()),
            Some(Ok(detached)) => {
                self.check(detached == handle, || {
                    "a detached lease has another handle".to_owned()
                });
                self.handles().count(0);
                if !is_stored_first {
                    let until = begun + ttl;
                    self.world.server.ledger.detached(&names, handle.lock_id(), until);
                    self.handles().store(Stored {
                        handle,
                        certain_until: Some(until),
                    });
                }
                Ok(())
            }
            Some(Err(error)) => {
                let expected = matches!(error, LockError::Lost { .. } | LockError::Mongo(_));
                self.check(expected, || format!("a detachment ended with {error:?}"));
                Ok(())
            }
        }
    }

    async fn use_handle(&mut self, stored: Stored) -> Result<(), LockError> {
        match self.rng.u8(0..10) {
            0 | 1 => self.extend(stored).await,
            2 => self.release_by_handle(stored).await,
            _ => self.resume(stored).await,
        }
    }

    /// Resumes a lease, in some calls after having given up before.
    async fn resume(&mut self, mut stored: Stored) -> Result<(), LockError> {
        let handle = &stored.handle.clone();
        self.world.server.ledger.may_end(handle.ids(), handle.lock_id());
        while chance(&mut self.rng, 300) {
            let (begun, patience) = (Instant::now(), between(&mut self.rng, 0, 300));
            if let Ok(resumed) = timeout(patience, self.resumed(handle)).await {
                return self.after_resumption(resumed, &stored).await;
            }
            self.handles().count(4);
            // It is given back for the time of the handle, also if it was extended.
            let least = begun + handle.ttl();
            stored.certain_until = stored.certain_until.map(|until| until.min(least));
            // A late copy of the request takes the lease, until it is given back.
            let uncertain = Stored {
                certain_until: None,
                ..stored.clone()
            };
            match self.rng.u8(0..8) {
                0 => return self.extend(uncertain).await,
                1 => return self.release_by_handle(uncertain).await,
                _ => {}
            }
        }
        let resumed = self.resumed(handle).await;
        self.after_resumption(resumed, &stored).await
    }

    async fn resumed(&self, handle: &LeaseHandle) -> Result<Held, LockError> {
        Ok(match handle.permit() {
            Some(_) => Held::Permit(self.provider.resume_permit(handle).await?),
            None => Held::Lock(self.provider.resume(handle).await?),
        })
    }

    async fn after_resumption(
        &mut self,
        resumed: Result<Held, LockError>,
        stored: &Stored,
    ) -> Result<(), LockError> {
        match resumed {
            Ok(held) => {
                let lock_id = Arc::clone(stored.handle.lock_id());
                let is_first = lock(&self.handles().resumed).insert(lock_id);
                self.check(is_first, || format!("{:?} was resumed twice", stored.handle));
                self.handles().count(1);
                // It is on the heap, because this call may lead to another detachment.
                Box::pin(self.hold_and_end(held)).await
            }
            Err(error) => self.not_found(&error, stored, "resumed"),
        }
    }

    async fn extend(&mut self, stored: Stored) -> Result<(), LockError> {
        let (begun, (least, most)) = (Instant::now(), TTL);
        let ttl = between(&mut self.rng, least, most);
        match self.provider.extend(&stored.handle, ttl).await {
            Ok(_) => {
                self.handles().count(2);
                let until = stored.certain_until.map(|until| until.max(begun + ttl));
                let handle = &stored.handle;
                if let Some(until) = until {
                    let ledger = &self.world.server.ledger;
                    ledger.detached(handle.ids(), handle.lock_id(), until);
                }
                self.handles().store(Stored {
                    certain_until: until,
                    ..stored
                });
                Ok(())
            }
            Err(error) => self.not_found(&error, &stored, "extended"),
        }
    }

    async fn release_by_handle(&mut self, stored: Stored) -> Result<(), LockError> {
        let handle = &stored.handle;
        self.world.server.ledger.may_end(handle.ids(), handle.lock_id());
        match self.provider.release(handle).await {
            Ok(true) => {
                self.handles().count(3);
                let resumed = timeout(Duration::from_secs(3), self.resumed(handle)).await;
                // A request that detaches the lease may take effect after a release that came too early.
                let is_lost = !matches!(resumed, Ok(Ok(_)));
                self.check(is_lost || stored.certain_until.is_none(), || {
                    format!("{handle:?} was resumed after its release")
                });
                Ok(())
            }
            Ok(false) => {
                // The second one of two copies of a release finds nothing to release.
                let is_repeated = self.world.plan.knobs.repetitions > 0;
                self.check(is_repeated || !self.surely_lasts(&stored), || {
                    format!("{handle:?} had nothing to release, though its lease lasts")
                });
                Ok(())
            }
            Err(error) => self.not_found(&error, &stored, "released"),
        }
    }

    /// Whether the lease lasts now, for all that is known.
    fn surely_lasts(&self, stored: &Stored) -> bool {
        let is_judged = self.world.plan.keeps_min_holds();
        is_judged
            && stored
                .certain_until
                .is_some_and(|until| Instant::now() + BLUR < until)
    }

    /// Judges a call whose lease was not there.
    fn not_found(&self, error: &LockError, stored: &Stored, what: &str) -> Result<(), LockError> {
        let expected = match error {
            LockError::Lost { .. } => !self.surely_lasts(stored),
            LockError::Mongo(_) => true,
            LockError::ShutDown { .. } => return Err(error.clone()),
            _ => false,
        };
        self.check(expected, || {
            format!(
                "{:?} was not {what}, though its lease lasts: {error:?}",
                stored.handle
            )
        });
        Ok(())
    }
}

impl Held {
    fn context(&self) -> LockContext {
        match self {
            Self::Lock(guard) => guard.context(),
            Self::Permit(permit) => permit.context(),
        }
    }

    /// The ids of the documents.
    fn names(&self) -> Vec<Arc<str>> {
        let context = self.context();
        let keys = context.lease().keys().iter();
        keys.map(|key| Arc::clone(&key.name)).collect()
    }

    fn detach(self, ttl: Duration) -> Detach {
        match self {
            Self::Lock(guard) => guard.detach(ttl),
            Self::Permit(permit) => permit.detach(ttl),
        }
    }

    async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

//! The waiters of this process: one queue for each name, first in, first out.

mod fairness;
mod front;
mod front_state;
mod handed_over;
mod holder;
mod queue_slot;

use std::collections::hash_map::Entry as Listed;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use fairness::HandoverBudget;
pub(crate) use fairness::Rivals;
pub(crate) use front::Front;
pub(crate) use front_state::{FrontStatus, RequestNumber};
use handed_over::HandedOver;
pub(crate) use holder::{Holder, Period};
pub(crate) use queue_slot::QueueSlot;

use crate::sync::lock;

/// The number of acquire requests of one name that may be in flight: each keeps a connection of the user's pool.
const MAX_REQUESTS: usize = 3;

/// The names of a set in their order, each once.
pub(crate) type SetNames = Arc<[Arc<str>]>;

/// The queues of this process, one for each name in use; a name that is not in use takes no memory.
///
/// Only the caller that has the [`Turn`] of a name holds the lock or sends acquire requests for it; the others wait in
/// the order of their arrival. `H` is the type of the hold that is handed over to the next waiter; it releases itself when
/// it is dropped.
pub(crate) struct Queues<H> {
    names: Mutex<HashMap<Arc<str>, Weak<Entry<H>>>>,
    /// Notified when the last name is no longer in use.
    idle: Notify,
}

/// The queue of one name. It exists as long as it has users: callers that hold the lock or wait for it, and claims that
/// are not yet released.
pub(crate) struct Entry<H> {
    queues: Arc<Queues<H>>,
    name: Arc<str>,
    /// Has one permit, which is the turn.
    turn: Semaphore,
    /// The number of callers that wait for the turn, and the hold that the next of them takes over.
    handed_over: HandedOver<H>,
    /// The times at which they began to wait, the number of each, and the set that it takes over whole, if it wants one. Their
    /// order is that of their turns.
    begun: Mutex<BTreeMap<(Instant, u64), Option<SetNames>>>,
    /// What the waiters at the front of this queue have learned from the server.
    front: Front,
    /// Limits the acquire requests in flight to [`MAX_REQUESTS`].
    requests: Semaphore,
    budget: Mutex<HandoverBudget>,
    /// Notified when this process has released one of several permits that the queue stands for.
    freed: Notify,
}

/// The right to hold a lock in this process, or to send acquire requests for it.
pub(crate) struct Turn<H> {
    entry: Arc<Entry<H>>,
}

/// The right to send one more acquire request for a name.
pub(crate) struct RequestPermit<H> {
    entry: Arc<Entry<H>>,
}

impl<H> Queues<H> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            names: Mutex::default(),
            idle: Notify::new(),
        })
    }

    pub(crate) fn join(self: &Arc<Self>, name: &Arc<str>) -> Arc<Entry<H>> {
        let mut names = lock(&self.names);
        let listed = names.entry(Arc::clone(name)).or_default();
        if let Some(entry) = listed.upgrade() {
            return entry;
        }
        let entry = Arc::new(Entry::new(Arc::clone(self), Arc::clone(name)));
        // This replaces an entry whose last user has just left, and which is being dropped.
        *listed = Arc::downgrade(&entry);
        entry
    }

    /// Whether a caller has the turn of a name.
    #[cfg(test)]
    pub(crate) fn is_turn_taken(&self, name: &str) -> bool {
        let entry = lock(&self.names).get(name).and_then(Weak::upgrade);
        entry.is_some_and(|entry| entry.turn.available_permits() == 0)
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.names).is_empty()
    }

    /// Waits until no name is in use in this process.
    pub(crate) async fn until_idle(&self) {
        loop {
            let notified = self.idle.notified();
            if lock(&self.names).is_empty() {
                return;
            }
            notified.await;
        }
    }
}

impl<H: Send + 'static> Entry<H> {
    /// What tells whether this queue is still in use.
    pub(crate) fn user(self: &Arc<Self>) -> Weak<dyn Send + Sync> {
        Arc::downgrade(&(Arc::clone(self) as Arc<dyn Send + Sync>))
    }
}

impl<H> Entry<H> {
    fn new(queues: Arc<Queues<H>>, name: Arc<str>) -> Self {
        Self {
            queues,
            name,
            turn: Semaphore::new(1),
            handed_over: HandedOver::new(),
            begun: Mutex::default(),
            front: Front::default(),
            requests: Semaphore::new(MAX_REQUESTS),
            budget: Mutex::new(HandoverBudget::default()),
            freed: Notify::new(),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Waits for the turn. Cancel safe: a dropped wait gives up its position in the order.
    pub(crate) async fn turn(self: &Arc<Self>) -> Turn<H> {
        self.turn_for(None).await
    }

    /// [`turn`](Self::turn) for a caller that takes over a hold of this set, whose first name is that of the queue.
    pub(crate) async fn turn_for(self: &Arc<Self>, set: Option<SetNames>) -> Turn<H> {
        let _counted = WaiterCount::begin(self, set);
        keep(self.turn.acquire().await);
        self.take()
    }

    /// The turn, if no caller in this process holds the lock or waits for it.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<Turn<H>> {
        self.turn.try_acquire().ok()?.forget();
        Some(self.take())
    }

    /// The turn of a caller that has acquired the permit.
    fn take(self: &Arc<Self>) -> Turn<H> {
        Turn {
            entry: Arc::clone(self),
        }
    }

    /// The number of callers in this process that wait for the turn.
    pub(crate) fn waiting(&self) -> usize {
        self.handed_over.waiters()
    }

    /// The time at which the one that has waited longest began.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        lock(&self.begun).keys().next().map(|(begun, _)| *begun)
    }

    /// Whether a caller in this process waits for the turn.
    pub(crate) fn others_wait(&self) -> bool {
        self.handed_over.waiters() > 0
    }

    /// A permit for one more acquire request for this name. Cancel safe.
    pub(crate) async fn request_permit(self: &Arc<Self>) -> RequestPermit<H> {
        keep(self.requests.acquire().await);
        RequestPermit {
            entry: Arc::clone(self),
        }
    }

    pub(crate) fn try_request_permit(self: &Arc<Self>) -> Option<RequestPermit<H>> {
        self.requests.try_acquire().ok()?.forget();
        Some(RequestPermit {
            entry: Arc::clone(self),
        })
    }

    /// Whether an acquire request for this name is in flight.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests.available_permits() < MAX_REQUESTS
    }

    /// The time for which this process may hand the lock over among its own waiters.
    pub(crate) fn budget(&self) -> MutexGuard<'_, HandoverBudget> {
        lock(&self.budget)
    }

    /// What the waiters at the front of this queue have learned from the server.
    pub(crate) fn front(&self) -> &Front {
        &self.front
    }

    /// Resolves when this process has released a permit, perhaps before this call. Cancel safe.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Drops a hold that was handed over to a waiter that has just been cancelled, if no other waiter can take it.
    fn release_if_abandoned(&self) {
        self.handed_over
            .release_if_abandoned(|| self.turn.try_acquire().ok());
    }
}

/// Keeps a permit, which is returned by hand: a permit that keeps its semaphore alive would take an allocation for each of
/// the two semaphores of a name.
fn keep<E>(acquired: Result<SemaphorePermit<'_>, E>) {
    match acquired {
        Ok(permit) => permit.forget(),
        Err(_) => unreachable!("the semaphores of a queue are never closed"),
    }
}

impl<H> Drop for Turn<H> {
    fn drop(&mut self) {
        self.entry.turn.add_permits(1);
    }
}

impl<H> Drop for RequestPermit<H> {
    fn drop(&mut self) {
        self.entry.requests.add_permits(1);
    }
}

impl<H> Turn<H> {
    pub(crate) fn entry(&self) -> &Arc<Entry<H>> {
        &self.entry
    }

    pub(crate) fn others_wait(&self) -> bool {
        self.entry.others_wait()
    }

    /// The set that the next caller wants; `None` if no caller waits, or if that one wants this name alone.
    pub(crate) fn next_set(&self) -> Option<SetNames> {
        lock(&self.entry.begun).values().next()?.clone()
    }

    /// Whether there is neither a hold to take over with the turn, nor a pause to make for other processes.
    pub(crate) fn is_fresh(&self) -> bool {
        self.entry.handed_over.is_empty() && !self.budget().must_yield()
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, HandoverBudget> {
        self.entry.budget()
    }

    /// Ends the turn and hands the hold over to the next waiter.
    pub(crate) fn hand_over(self, hold: H) {
        let entry = Arc::clone(&self.entry);
        entry.handed_over.put(hold);
        drop(self);
        entry.release_if_abandoned();
    }

    /// Ends the turn of a caller that does not use it: a hold that was handed over with it goes to the next waiter.
    pub(crate) fn pass_on(self) {
        match self.take_over() {
            Some(hold) => self.hand_over(hold),
            None => drop(self),
        }
    }

    /// What the waiters at the front of this queue have learned from the server.
    pub(crate) fn front(&self) -> &Front {
        self.entry.front()
    }

    /// The hold that was handed over with the turn.
    pub(crate) fn take_over(&self) -> Option<H> {
        self.entry.handed_over.take()
    }

    /// The same for a caller that takes only some holds over: the others, which `wanted` returns as an error, stay with the turn.
    pub(crate) fn take_over_if(&self, wanted: impl FnOnce(H) -> Result<H, H>) -> Option<H> {
        let refused = |other| self.entry.handed_over.put(other);
        wanted(self.take_over()?).map_err(refused).ok()
    }
}

/// One waiter, counted until it is dropped.
struct WaiterCount<'a, H> {
    entry: &'a Entry<H>,
    /// The time at which it began to wait, and its number.
    begun: (Instant, u64),
}

/// The number of the waiter that came last, in any queue.
static LAST_WAITER: AtomicU64 = AtomicU64::new(0);

impl<'a, H> WaiterCount<'a, H> {
    fn begin(entry: &'a Entry<H>, set: Option<SetNames>) -> Self {
        entry.handed_over.join();
        let begun = (Instant::now(), LAST_WAITER.fetch_add(1, Ordering::Relaxed));
        lock(&entry.begun).insert(begun, set);
        Self { entry, begun }
    }
}

impl<H> Drop for WaiterCount<'_, H> {
    fn drop(&mut self) {
        lock(&self.entry.begun).remove(&self.begun);
        let entry = self.entry;
        entry.handed_over.leave(|| entry.turn.try_acquire().ok());
    }
}

impl<H> Drop for Entry<H> {
    fn drop(&mut self) {
        let mut names = lock(&self.queues.names);
        // A caller that has come in the meantime has listed a queue of its own.
        if let Listed::Occupied(listed) = names.entry(Arc::clone(&self.name))
            && std::ptr::eq(listed.get().as_ptr(), self)
        {
            listed.remove();
        }
        if names.is_empty() {
            self.queues.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;

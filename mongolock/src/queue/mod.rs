//! The waiters of this process: one queue for each name, in the order in which they came.

mod fairness;
mod front;
mod silent;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use fairness::Streak;
pub(crate) use front::{Front, FrontStatus};
pub(crate) use silent::{Silent, SilentRequests};

use crate::sync::lock;

/// Acquire requests of one name that may be without a reply: each keeps a connection of the user's pool.
const MOST_REQUESTS: usize = 3;

/// The queues of this process, one for each name that somebody here has to do with; an idle name costs nothing.
///
/// Whoever has the [`Turn`] of a name is alone in this process in holding it or asking the server for it;
/// the others wait in the order in which they came. What one of them hands over to the next is of the type `H`, which
/// releases itself when it is dropped.
pub(crate) struct Queues<H> {
    names: Mutex<HashMap<Arc<str>, Entry<H>>>,
    /// The requests of all fronts that have had no reply for a while.
    pub(crate) silent: Arc<SilentRequests>,
    idle: Notify,
}

struct Entry<H> {
    queue: Arc<Queue<H>>,
    /// The one whose turn it is, those behind it, and claims that are still to be settled with the server.
    people: usize,
}

struct Queue<H> {
    turn: Arc<Semaphore>,
    /// How many wait for the turn.
    waiting: AtomicUsize,
    front: Front,
    requests: Arc<Semaphore>,
    /// A hold on its way from one caller to the next. Dropped with the queue, it releases the lock.
    handed_over: Mutex<Option<H>>,
    streak: Mutex<Streak>,
}

/// A place with a name, left on drop.
pub(crate) struct Place<H> {
    queues: Arc<Queues<H>>,
    name: Arc<str>,
    queue: Arc<Queue<H>>,
}

/// The right to hold a name in this process, or to ask the server for it.
pub(crate) struct Turn<H> {
    // Given back before the place is left, so that the next in the queue finds the same semaphore.
    _permit: OwnedSemaphorePermit,
    place: Arc<Place<H>>,
}

impl<H> Queues<H> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            names: Mutex::default(),
            silent: SilentRequests::new(),
            idle: Notify::new(),
        })
    }

    pub(crate) fn join(self: &Arc<Self>, name: &Arc<str>) -> Arc<Place<H>> {
        let mut names = lock(&self.names);
        let entry = names.entry(Arc::clone(name)).or_insert_with(|| Entry {
            queue: Queue::new(),
            people: 0,
        });
        entry.people += 1;
        Arc::new(Place {
            queues: Arc::clone(self),
            name: Arc::clone(name),
            queue: Arc::clone(&entry.queue),
        })
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.names).is_empty()
    }

    /// Waits until nobody in this process has to do with any name.
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

impl<H> Queue<H> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turn: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            front: Front::new(),
            requests: Arc::new(Semaphore::new(MOST_REQUESTS)),
            handed_over: Mutex::new(None),
            streak: Mutex::new(Streak::default()),
        })
    }

    /// Lets go of a hold that was left for one who has just gone, if nobody else is there to take it. Whoever leaves one
    /// looks, and whoever goes: the later of the two sees both.
    fn release_if_abandoned(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0
            && let Ok(_permit) = self.turn.try_acquire()
        {
            let abandoned = lock(&self.handed_over).take();
            drop(abandoned);
        }
    }
}

impl<H> Place<H> {
    /// Waits for the turn. Cancel safe: a dropped wait gives up its place in the order.
    pub(crate) async fn turn(self: &Arc<Self>) -> Turn<H> {
        let _waiting = Waiting::begin(&self.queue);
        match Arc::clone(&self.queue.turn).acquire_owned().await {
            Ok(permit) => self.take(permit),
            Err(_) => unreachable!("the semaphore of a queue is never closed"),
        }
    }

    /// The turn, if nobody in this process holds or awaits the name.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<Turn<H>> {
        Arc::clone(&self.queue.turn)
            .try_acquire_owned()
            .ok()
            .map(|permit| self.take(permit))
    }

    fn take(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Turn<H> {
        Turn {
            _permit: permit,
            place: Arc::clone(self),
        }
    }

    /// Whether the lock would have a next holder in this process.
    pub(crate) fn others_wait(&self) -> bool {
        self.queue.waiting.load(Ordering::Relaxed) > 0
    }

    /// The right to send one more request for this name. Cancel safe.
    pub(crate) async fn request_permit(&self) -> OwnedSemaphorePermit {
        match Arc::clone(&self.queue.requests).acquire_owned().await {
            Ok(permit) => permit,
            Err(_) => unreachable!("the semaphore of a queue is never closed"),
        }
    }

    /// Whether a request for this name is under way.
    pub(crate) fn has_requests(&self) -> bool {
        self.queue.requests.available_permits() < MOST_REQUESTS
    }

    pub(crate) fn try_request_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.queue.requests).try_acquire_owned().ok()
    }

    /// What the fronts of this queue have heard.
    pub(crate) fn front(&self) -> &Front {
        &self.queue.front
    }
}

/// What is given up once the server has been told of a release.
pub(crate) enum Kept<H> {
    /// The next in this process may go on.
    Turn(Turn<H>),
    /// Nobody waits for it but a shutdown.
    Place {
        _place: Arc<Place<H>>,
    },
    Nothing,
}

impl<H> Kept<H> {
    /// Lets the next in this process ask the server himself, and still keeps a shutdown waiting.
    pub(crate) fn without_turn(self) -> Self {
        match self {
            Self::Turn(turn) => Self::Place { _place: turn.place },
            other => other,
        }
    }
}

impl<H> Turn<H> {
    pub(crate) fn others_wait(&self) -> bool {
        self.place.others_wait()
    }

    /// Nothing came with it: no hold to take over, and no moment owed to others.
    pub(crate) fn is_fresh(&self) -> bool {
        lock(&self.place.queue.handed_over).is_none() && !self.streak().owes_courtesy()
    }

    pub(crate) fn streak(&self) -> MutexGuard<'_, Streak> {
        lock(&self.place.queue.streak)
    }

    /// Ends the turn and leaves a hold for the next in the queue.
    pub(crate) fn hand_over(self, hold: H) {
        let place = Arc::clone(&self.place);
        *lock(&place.queue.handed_over) = Some(hold);
        drop(self);
        place.queue.release_if_abandoned();
    }

    /// The hold that the turn came with.
    pub(crate) fn take_over(&self) -> Option<H> {
        lock(&self.place.queue.handed_over).take()
    }
}

/// One who waits for the turn of a queue.
struct Waiting<'a, H>(&'a Queue<H>);

impl<'a, H> Waiting<'a, H> {
    fn begin(queue: &'a Queue<H>) -> Self {
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        Self(queue)
    }
}

impl<H> Drop for Waiting<'_, H> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.release_if_abandoned();
    }
}

impl<H> Drop for Place<H> {
    fn drop(&mut self) {
        let mut names = lock(&self.queues.names);
        if let Some(entry) = names.get_mut(&self.name) {
            entry.people -= 1;
            if entry.people == 0 {
                names.remove(&self.name);
            }
        }
        if names.is_empty() {
            self.queues.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::is_pending;

    fn join<H>(queues: &Arc<Queues<H>>, name: &str) -> Arc<Place<H>> {
        queues.join(&Arc::from(name))
    }

    #[tokio::test]
    async fn turns_come_in_order_and_leave_nothing_behind() {
        let queues = Queues::<()>::new();
        let first = join(&queues, "n").turn().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = tokio::task::JoinSet::new();
        for index in 0..5 {
            let (queues, order) = (Arc::clone(&queues), Arc::clone(&order));
            waiters.spawn(async move {
                let _turn = join(&queues, "n").turn().await;
                lock(&order).push(index);
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        while waiters.join_next().await.is_some() {}
        assert_eq!(*lock(&order), [0, 1, 2, 3, 4]);
        assert!(lock(&queues.names).is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_waiter_leaves_and_trying_never_waits() {
        let queues = Queues::<()>::new();
        let first = join(&queues, "n").try_turn().unwrap();
        assert!(join(&queues, "n").try_turn().is_none());
        assert!(join(&queues, "other").try_turn().is_some());
        let short = std::time::Duration::from_millis(1);
        assert!(
            tokio::time::timeout(short, join(&queues, "n").turn())
                .await
                .is_err()
        );
        drop(first);
        queues.until_idle().await;
        assert!(join(&queues, "n").try_turn().is_some());
    }

    /// Either the one who leaves a hold for the next finds that it has gone, or the one who goes finds the hold.
    #[tokio::test]
    async fn a_hold_is_not_left_to_nobody() {
        let queues = Queues::new();
        let (front, behind) = (join(&queues, "n"), join(&queues, "n"));
        let is_left = || lock(&front.queue.handed_over).is_some();
        let hold = Arc::new(());

        front.turn().await.hand_over(Arc::clone(&hold));
        assert!(!is_left());

        let turn = front.turn().await;
        let mut waiting = Box::pin(behind.turn());
        assert!(is_pending(waiting.as_mut()).await);
        turn.hand_over(Arc::clone(&hold));
        assert!(is_left(), "it is for the one that waits");
        drop(waiting);
        assert!(!is_left());
        assert_eq!(Arc::strong_count(&hold), 1, "dropping a hold releases it");
    }
}

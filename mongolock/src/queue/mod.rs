pub(crate) mod fairness;
pub(crate) mod silent;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::queue::fairness::Streak;
use crate::store::driver_error;
use crate::sync::lock;
use crate::{LockError, LockGuard};

/// A server that works answers an acquire request sooner, also in another city.
pub(crate) const SLOW_ANSWER: Duration = Duration::from_millis(500);

/// A wait without a limit ends when MongoDB has given no usable answer about the name for so long: an election takes
/// less, and a wait for a server that is gone would never end.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// A caller that comes when the server has been silent for long waits so long for it to come back.
const SILENCE_LEAST: Duration = Duration::from_secs(10);

/// Acquire requests of one name that may be without a reply: each keeps a connection of the user's pool.
const MOST_REQUESTS: usize = 3;

/// The queues of this process, one for each name that somebody here has to do with; an idle name costs nothing.
///
/// Whoever has the [`Turn`] of a name is alone in this process in holding it or asking the server for it;
/// the others wait in the order in which they came.
#[derive(Default)]
pub(crate) struct Queues {
    names: Mutex<HashMap<Arc<str>, Entry>>,
    idle: Notify,
}

struct Entry {
    queue: Arc<Queue>,
    /// The one whose turn it is, those behind it, and claims that are still to be settled with the server.
    people: usize,
}

struct Queue {
    turn: Arc<Semaphore>,
    /// How many wait for the turn.
    waiting: AtomicUsize,
    heard: Mutex<Heard>,
    requests: Arc<Semaphore>,
    /// A hold on its way from one caller to the next. Dropped with the queue, it releases the lock.
    handed_over: Mutex<Option<LockGuard>>,
    streak: Mutex<Streak>,
}

/// What is known of a lock when the time of a waiter is up.
#[derive(Debug, Clone)]
pub(crate) enum FrontStatus {
    /// The server has said so, or a caller in this process has it.
    Held,
    /// The last request failed. Boxed: every lock that is held has room for it, and hardly any needs it.
    Failed(Box<LockError>),
    /// The server has said nothing yet, or not for a while.
    NoReply,
}

/// What the front of the queue has heard from the server; those behind know no more, and the next front goes on from
/// there.
struct Heard {
    last: FrontStatus,
    /// The first request that no usable answer has followed.
    silent_since: Option<Instant>,
}

/// A place with a name, left on drop.
pub(crate) struct Place {
    queues: Arc<Queues>,
    name: Arc<str>,
    queue: Arc<Queue>,
}

/// The right to hold a name in this process, or to ask the server for it.
pub(crate) struct Turn {
    // Given back before the place is left, so that the next in the queue finds the same semaphore.
    _permit: OwnedSemaphorePermit,
    place: Arc<Place>,
}

impl Queues {
    pub(crate) fn join(self: &Arc<Self>, name: &Arc<str>) -> Arc<Place> {
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

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turn: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            heard: Mutex::new(Heard {
                last: FrontStatus::NoReply,
                silent_since: None,
            }),
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

impl Place {
    /// Waits for the turn. Cancel safe: a dropped wait gives up its place in the order.
    pub(crate) async fn turn(self: &Arc<Self>) -> Turn {
        let _waiting = Waiting::begin(&self.queue);
        match Arc::clone(&self.queue.turn).acquire_owned().await {
            Ok(permit) => self.take(permit),
            Err(_) => unreachable!("the semaphore of a queue is never closed"),
        }
    }

    /// The turn, if nobody in this process holds or awaits the name.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<Turn> {
        Arc::clone(&self.queue.turn)
            .try_acquire_owned()
            .ok()
            .map(|permit| self.take(permit))
    }

    fn take(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Turn {
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

    pub(crate) fn try_request_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.queue.requests).try_acquire_owned().ok()
    }

    /// A request is sent. What was heard last stays known for as long as a healthy server needs for its reply.
    pub(crate) fn asked(&self) {
        lock(&self.queue.heard)
            .silent_since
            .get_or_insert_with(Instant::now);
    }

    /// The server has said that somebody has the lock, or a caller in this process has got it.
    pub(crate) fn heard_held(&self) {
        *lock(&self.queue.heard) = Heard {
            last: FrontStatus::Held,
            silent_since: None,
        };
    }

    /// A request has failed. The server is silent all the same, unless it said what is wrong with the document.
    pub(crate) fn heard_failure(&self, error: LockError) {
        let mut heard = lock(&self.queue.heard);
        if driver_error::is_blocked_document(&error) {
            heard.silent_since = None;
        }
        heard.last = FrontStatus::Failed(Box::new(error));
    }

    pub(crate) fn status(&self) -> FrontStatus {
        let heard = lock(&self.queue.heard);
        match (&heard.last, heard.silent_since) {
            (FrontStatus::Held, Some(since)) if since.elapsed() >= SLOW_ANSWER => FrontStatus::NoReply,
            (last, _) => last.clone(),
        }
    }

    /// Whether the server has had more time for a reply than it needs.
    pub(crate) fn is_silent(&self) -> bool {
        lock(&self.queue.heard)
            .silent_since
            .is_some_and(|since| since.elapsed() >= SLOW_ANSWER)
    }

    /// When a wait without a limit that began then ends because of the server's silence; `None` while it answers. The
    /// silence belongs to the name: those who come later or stand behind do not count it anew.
    pub(crate) fn silence_ends(&self, begun: Instant) -> Option<Instant> {
        let since = lock(&self.queue.heard).silent_since?;
        Some((since + SILENCE_LIMIT).max(begun + SILENCE_LEAST))
    }

    /// Resolves when a wait without a limit that began then has to end.
    pub(crate) async fn silence(&self, begun: Instant) {
        loop {
            let now = Instant::now();
            match self.silence_ends(begun) {
                Some(end) if end <= now => return,
                Some(end) => tokio::time::sleep_until(end).await,
                // A silence that begins from now on ends no earlier.
                None => tokio::time::sleep(SILENCE_LIMIT).await,
            }
        }
    }
}

/// What is given up once the server has been told of a release.
pub(crate) enum Kept {
    /// The next in this process may go on.
    Turn(Turn),
    /// Nobody waits for it but a shutdown.
    Place {
        _place: Arc<Place>,
    },
    Nothing,
}

impl Kept {
    /// Lets the next in this process ask the server himself, and still keeps a shutdown waiting.
    pub(crate) fn without_turn(self) -> Self {
        match self {
            Self::Turn(turn) => Self::Place { _place: turn.place },
            other => other,
        }
    }
}

impl Turn {
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
    pub(crate) fn hand_over(self, hold: LockGuard) {
        let place = Arc::clone(&self.place);
        *lock(&place.queue.handed_over) = Some(hold);
        drop(self);
        place.queue.release_if_abandoned();
    }

    /// The hold that the turn came with.
    pub(crate) fn take_over(&self) -> Option<LockGuard> {
        lock(&self.place.queue.handed_over).take()
    }
}

/// One who waits for the turn of a queue.
struct Waiting<'a>(&'a Queue);

impl<'a> Waiting<'a> {
    fn begin(queue: &'a Queue) -> Self {
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        Self(queue)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.release_if_abandoned();
    }
}

impl Drop for Place {
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
    use crate::LockProvider;
    use crate::task::is_pending;

    fn join(queues: &Arc<Queues>, name: &str) -> Arc<Place> {
        queues.join(&Arc::from(name))
    }

    #[tokio::test]
    async fn turns_come_in_order_and_leave_nothing_behind() {
        let queues = Arc::new(Queues::default());
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
        let queues = Arc::new(Queues::default());
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

    #[tokio::test(start_paused = true)]
    async fn those_behind_know_what_the_front_has_heard() {
        let queues = Arc::new(Queues::default());
        let (front, behind) = (join(&queues, "n"), join(&queues, "n"));
        let turn = front.turn().await;
        assert!(
            matches!(behind.status(), FrontStatus::NoReply),
            "nothing is known"
        );
        front.asked();
        assert!(matches!(behind.status(), FrontStatus::NoReply));
        front.heard_failure(LockError::NoProvider);
        assert!(matches!(behind.status(), FrontStatus::Failed(_)));
        front.heard_held();
        assert!(matches!(behind.status(), FrontStatus::Held));
        front.asked();
        drop(turn);
        let _turn = behind.turn().await;
        assert!(
            matches!(front.status(), FrontStatus::Held),
            "an answer takes its time"
        );
        tokio::time::sleep(SLOW_ANSWER).await;
        behind.asked();
        assert!(
            matches!(front.status(), FrontStatus::NoReply),
            "the next front does not begin anew"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_of_the_server_belongs_to_the_name() {
        let queues = Arc::new(Queues::default());
        let (front, behind) = (join(&queues, "n"), join(&queues, "n"));
        let begun = Instant::now();
        front.asked();
        tokio::join!(front.silence(begun), behind.silence(begun));
        assert_eq!(begun.elapsed().as_secs(), 60);
        let late = Instant::now();
        behind.silence(late).await;
        assert_eq!(
            late.elapsed().as_secs(),
            10,
            "one who comes later has a chance as well"
        );
        front.heard_failure(driver_error::blocked(
            "n",
            mongodb::error::Error::custom("blocked"),
        ));
        assert_eq!(behind.silence_ends(late), None, "the server has answered");
    }

    /// Whoever leaves a hold for the next finds that he has gone, or he who goes finds that one is left for him.
    #[tokio::test]
    async fn a_hold_is_not_left_to_nobody() {
        let locks = LockProvider::in_memory();
        let queues = Arc::new(Queues::default());
        let (front, behind) = (join(&queues, "n"), join(&queues, "n"));
        let is_left = || lock(&front.queue.handed_over).is_some();

        let hold = locks.lock("a").await.unwrap();
        front.turn().await.hand_over(hold);
        assert!(!is_left());

        let turn = front.turn().await;
        let mut waiting = Box::pin(behind.turn());
        assert!(is_pending(waiting.as_mut()).await);
        turn.hand_over(locks.lock("b").await.unwrap());
        assert!(is_left(), "it is his turn");
        drop(waiting);
        assert!(!is_left());
        for name in ["a", "b"] {
            drop(locks.lock(name).await.unwrap());
        }
    }
}

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::streak::Streak;
use crate::sync::lock;
use crate::{LockError, LockGuard};

/// A server that works answers a claim sooner, also in another city.
const SLOW_ANSWER: Duration = Duration::from_millis(500);

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
    /// A hold on its way from one caller to the next. Dropped with the queue, it releases the lock.
    handed_over: Mutex<Option<LockGuard>>,
    streak: Mutex<Streak>,
}

/// What is known of the lock when the time of one who waits is up.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// Somebody has it, here or elsewhere.
    Held,
    /// Boxed: every lock that is held has room for it, and hardly any needs it.
    Failed(Box<LockError>),
    /// The one in front has asked, and the server has not answered for a while.
    NoAnswer,
}

/// What the one whose turn it is has heard: those behind know no more.
struct Heard {
    latest: News,
    asking_since: Option<Instant>,
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
                latest: News::Held,
                asking_since: None,
            }),
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
            Ok(permit) => self.begin(permit),
            Err(_) => unreachable!("the semaphore of a queue is never closed"),
        }
    }

    /// The turn, if nobody in this process holds or awaits the name.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<Turn> {
        Arc::clone(&self.queue.turn)
            .try_acquire_owned()
            .ok()
            .map(|permit| self.begin(permit))
    }

    fn begin(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Turn {
        lock(&self.queue.heard).asking_since = Some(Instant::now());
        Turn {
            _permit: permit,
            place: Arc::clone(self),
        }
    }

    /// Whether the lock would have a next holder in this process.
    pub(crate) fn others_wait(&self) -> bool {
        self.queue.waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn tell(&self, news: News) {
        *lock(&self.queue.heard) = Heard {
            latest: news,
            asking_since: None,
        };
    }

    /// A question is asked that has to be answered; the latest news stay for as long as that may take.
    pub(crate) fn ask(&self) {
        lock(&self.queue.heard)
            .asking_since
            .get_or_insert_with(Instant::now);
    }

    pub(crate) fn news(&self) -> News {
        let heard = lock(&self.queue.heard);
        match heard.asking_since {
            Some(since) if since.elapsed() >= SLOW_ANSWER => News::NoAnswer,
            _ => heard.latest.clone(),
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
    async fn those_behind_hear_the_news_of_the_one_in_front() {
        let queues = Arc::new(Queues::default());
        let (front, behind) = (join(&queues, "n"), join(&queues, "n"));
        let turn = front.turn().await;
        assert!(matches!(behind.news(), News::Held), "somebody is at it");
        tokio::time::sleep(SLOW_ANSWER).await;
        assert!(matches!(behind.news(), News::NoAnswer));
        front.tell(News::Failed(Box::new(LockError::NoProvider)));
        assert!(matches!(behind.news(), News::Failed(_)));
        front.tell(News::Held);
        drop(turn);
        let _turn = behind.turn().await;
        assert!(matches!(front.news(), News::Held), "an answer takes its time");
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

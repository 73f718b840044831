//! The lines of a provider, with documents in memory and in virtual time.

mod time_slots;

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::{Instant, sleep};

use super::line::{Line, PlaceRequest, Write};
use super::{Lines, OwnAcquisition, User};
use crate::protocol::Kind;
use crate::queue::Rivals;
use crate::store::{MemoryStore, ProviderMark, Store, Waiter};
use crate::sync::lock;
use crate::timing::{
    LINE_LINGER, LINE_MARGIN, LINE_POLL, LINE_POLL_PART, LINE_REACQUIRED, LINE_REACQUIRED_EVERY, LINE_READ,
    LINE_REMEMBER, LINE_REMEMBER_WITHOUT_LINE, LINE_SHOWN, LINE_SLOT_POLLING, LINE_SLOTS_MAX, WAITER_KEPT,
    YIELD_MAX, YIELD_MAX_POLLING,
};

/// Longer than the tasks need to write what is due, and shorter than all pauses here.
const SETTLES: Duration = Duration::from_millis(1);

/// The lines of one provider; the documents are shared with others.
struct Provider {
    lines: Arc<Lines>,
    mark: ProviderMark,
}

/// What uses a name in a process.
#[derive(Clone)]
struct Queue(Arc<dyn Send + Sync>);

impl Queue {
    fn new() -> Self {
        Self(Arc::new(()))
    }

    fn user(&self) -> User {
        Arc::downgrade(&self.0)
    }
}

impl Provider {
    fn new(store: &Arc<Store>) -> Self {
        let mark = ProviderMark::random();
        let (store, owner) = (Arc::clone(store), Arc::from("owner"));
        let lines = Arc::new(Lines::new(store, mark.clone(), owner));
        Self { lines, mark }
    }

    /// Providers whose documents are in the same collection.
    fn several<const N: usize>() -> [Self; N] {
        let store = Arc::new(Store::Memory(Arc::new(MemoryStore::new())));
        std::array::from_fn(|_| Self::new(&store))
    }

    async fn enter(&self, name: &str, queue: &Queue) {
        let begun = Some(Instant::now());
        self.lines.enter(&Arc::from(name), queue.user(), 1, true, begun);
        sleep(SETTLES).await;
    }

    /// Until when its next caller leaves the lock `n` to others.
    fn yields_until(&self) -> Option<Instant> {
        self.lines.standing("n")?.yields_until
    }

    async fn acquire(&self, name: &str, queue: &Queue) {
        self.acquire_within(name, queue, Duration::ZERO).await;
    }

    async fn acquire_within(&self, name: &str, queue: &Queue, request: Duration) {
        let acquired = OwnAcquisition {
            request,
            waiting_since: None,
            user: queue.user(),
            has_stream: true,
        };
        self.lines.acquired(&Arc::from(name), || acquired);
        sleep(SETTLES).await;
    }

    fn claim(&self) -> Arc<str> {
        self.mark.new_lock_id("owner", Kind::Single)
    }

    fn hears_of(&self, name: &str, other: &Self) {
        self.lines.held_by(&Arc::from(name), &other.claim());
    }

    /// The documents in the line of a name, which all providers share.
    async fn documents(&self, name: &str) -> Vec<Waiter> {
        let name: Arc<str> = Arc::from(name);
        let mut lines = self
            .lines
            .store
            .lines(std::slice::from_ref(&name), SETTLES)
            .await
            .unwrap();
        lines.remove(&name).unwrap_or_default()
    }

    async fn stands_at(&self, name: &str) -> Option<usize> {
        let line = self.documents(name).await;
        line.iter()
            .position(|waiter| *waiter.provider == *self.mark.as_str())
    }

    async fn remove_document(&self, name: &str) {
        let names = [Arc::from(name)];
        self.lines
            .store
            .leave_lines(&self.mark, &names, SETTLES)
            .await
            .unwrap();
    }
}

fn waiter(provider: &str, at: i64, time_slot: Duration) -> Waiter {
    Waiter {
        provider: Arc::from(provider),
        owner: String::new(),
        at: DateTime::from_millis(at),
        since: None,
        time_slot,
    }
}

/// A line of this process, whose own document is behind those of these providers.
fn behind(providers: &[&str], queue: &Queue, has_stream: bool) -> Line {
    let mut line = Line::new(queue.user(), has_stream);
    let all = providers.iter().chain(&["own"]);
    let documents: Vec<Waiter> = (0..)
        .zip(all)
        .map(|(at, provider)| waiter(provider, at, LINE_MARGIN))
        .collect();
    line.read(&documents, "own");
    line
}

fn claim_without_line(number: u32) -> Arc<str> {
    Arc::from(format!("net-{number}"))
}

/// The number of waiters before a provider.
fn ahead(lines: &Lines, name: &str) -> Option<usize> {
    Some(lines.standing(name)?.ahead)
}

/// It stood in line when the wait began, so that it has written nothing for it.
#[tokio::test(start_paused = true)]
async fn a_long_wait_is_written_beside_the_place_that_the_provider_has() {
    let [a, b] = Provider::several();
    let (queue, name) = (Queue::new(), Arc::from("n"));
    a.acquire("n", &queue).await;
    a.enter("n", &queue).await;
    a.acquire("n", &queue).await;
    b.enter("n", &queue).await;
    let begun = Instant::now();
    for (waited, is_seen) in [(Duration::ZERO, false), (LINE_SHOWN, true), (LINE_SHOWN, true)] {
        sleep(waited).await;
        let standing = a.lines.waits(&name, begun, true);
        assert_eq!(standing.map(|standing| standing.ahead), Some(0));
        sleep(SETTLES).await;
        assert_eq!(a.documents("n").await[0].since.is_some(), is_seen, "{waited:?}");
        assert_eq!(a.stands_at("n").await, Some(0));
    }
}

/// A hold of an hour is awaited by calls with short timeouts, one after the other.
#[tokio::test(start_paused = true)]
async fn the_document_tells_of_a_later_caller_when_the_first_has_left() {
    let [a] = Provider::several();
    let (queue, name) = (Queue::new(), Arc::from("n"));
    a.enter("n", &queue).await;
    let entered = a.documents("n").await;
    let second = Instant::now() + LINE_SHOWN;
    sleep(LINE_SHOWN * 2).await;
    for since in [second, second] {
        a.lines.waits(&name, since, true);
        sleep(SETTLES).await;
        let now = a.documents("n").await;
        assert_eq!(now[0].at, entered[0].at);
        let later = now[0].since.unwrap().timestamp_millis() - entered[0].since.unwrap().timestamp_millis();
        assert!(later >= 490, "{later}");
    }
}

/// It was expected to have a stream when it entered, and has no right to one.
#[tokio::test(start_paused = true)]
async fn a_provider_that_turns_out_to_poll_asks_for_a_longer_time_slot() {
    let [a] = Provider::several();
    a.enter("n", &Queue::new()).await;
    a.lines.waits(&Arc::from("n"), Instant::now(), false);
    sleep(SETTLES).await;
    assert_eq!(a.documents("n").await[0].time_slot, LINE_SLOT_POLLING);
}

#[test]
fn a_write_that_failed_is_wanted_again_unless_there_is_another_one() {
    let queue = Queue::new();
    let mut line = Line::new(queue.user(), true);
    line.want_move(None);
    let write = line.take_write().unwrap();
    line.put_back(write);
    assert!(matches!(line.take_write(), Some(Write::Place(place)) if !place.is_kept));
    line.want_move(None);
    line.put_back(Write::Leave);
    assert!(matches!(line.take_write(), Some(Write::Place(_))));
    line.put_back(Write::Leave);
    assert!(!line.wants_write(), "the name is in use");
    drop(queue);
    line.put_back(Write::Leave);
    assert!(line.wants_write());
    let again = Queue::new();
    line.set_user(again.user());
    assert!(!line.wants_write(), "it does not leave");
}

#[tokio::test(start_paused = true)]
async fn a_provider_has_one_document_for_a_name_however_often_it_enters() {
    let [a, b] = Provider::several();
    let queue = Queue::new();
    assert!(a.lines.is_empty() && a.lines.standing("n").is_none());
    a.enter("n", &queue).await;
    let entered = a.documents("n").await;
    sleep(SETTLES * 5).await;
    a.enter("n", &queue).await;
    assert_eq!(a.documents("n").await, entered, "it keeps its place");
    assert!(entered[0].since.is_some() && a.lines.standing("n").is_some());
    b.enter("n", &queue).await;
    assert_eq!(
        (a.stands_at("n").await, b.stands_at("n").await),
        (Some(0), Some(1))
    );
    assert_eq!((ahead(&a.lines, "n"), ahead(&b.lines, "n")), (Some(0), Some(1)));
    assert_eq!(ahead(&b.lines, "other"), None);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_acquires_goes_to_the_end() {
    let [a, b, c] = Provider::several();
    let queue = Queue::new();
    for provider in [&a, &b, &c] {
        provider.enter("n", &queue).await;
    }
    // The end is behind all others also where they entered in the same millisecond.
    for (number, provider) in [&a, &b, &c, &a, &b].into_iter().enumerate() {
        assert_eq!(provider.stands_at("n").await, Some(0), "acquisition {number}");
        provider.acquire("n", &queue).await;
        assert_eq!(provider.stands_at("n").await, Some(2), "acquisition {number}");
        assert_eq!(ahead(&provider.lines, "n"), Some(2), "acquisition {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_leaves_soon_after_its_last_user() {
    let [a] = Provider::several();
    let queue = Queue::new();
    a.enter("n", &queue).await;
    a.acquire("n", &queue).await;
    // The queue is in use for longer than the provider lingers.
    sleep(LINE_LINGER * 20).await;
    assert_eq!(a.stands_at("n").await, Some(0));
    drop(queue);
    a.lines.released("n");
    sleep(LINE_LINGER / 2).await;
    assert_eq!(a.stands_at("n").await, Some(0), "it often asks again");
    let again = Queue::new();
    a.lines.enter(&"n".into(), again.user(), 1, true, None);
    sleep(LINE_LINGER * 2).await;
    assert_eq!(a.stands_at("n").await, Some(0), "it has asked again");
    drop(again);
    a.lines.waiter_left("n");
    sleep(LINE_LINGER + SETTLES).await;
    assert_eq!(a.stands_at("n").await, None);
    assert!(a.lines.is_empty());
}

/// Nothing tells of a queue that ends without a release: the keeper finds it by time.
#[tokio::test(start_paused = true)]
async fn a_user_that_vanishes_leaves_no_document() {
    let [a] = Provider::several();
    for name in ["one", "two", "three"] {
        a.enter(name, &Queue::new()).await;
    }
    sleep(Duration::from_secs(3)).await;
    for name in ["one", "two", "three"] {
        assert_eq!(a.documents(name).await, [], "{name}");
    }
    assert!(a.lines.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_enters_again_while_it_leaves_stands_in_line() {
    let [a] = Provider::several();
    for round in 0..50 {
        let queue = Queue::new();
        a.enter("n", &queue).await;
        drop(queue);
        a.lines.waiter_left("n");
        // The removal is due at this time, and may be under way.
        sleep(LINE_LINGER.saturating_sub(SETTLES) + Duration::from_micros(100 * round)).await;
        let queue = Queue::new();
        a.enter("n", &queue).await;
        sleep(LINE_LINGER * 3).await;
        assert!(a.lines.standing("n").is_some(), "round {round}");
        assert_eq!(a.stands_at("n").await, Some(0), "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn documents_are_prolonged_and_lost_ones_come_back_with_the_next_acquisition() {
    let [a, b] = Provider::several();
    let queue = Queue::new();
    a.enter("n", &queue).await;
    b.enter("n", &queue).await;
    sleep(WAITER_KEPT * 3).await;
    assert_eq!(
        (a.stands_at("n").await, b.stands_at("n").await),
        (Some(0), Some(1))
    );
    a.remove_document("n").await;
    sleep(LINE_READ * 2).await;
    assert_eq!(a.stands_at("n").await, None, "prolonging brings no document back");
    assert_eq!(
        ahead(&a.lines, "n"),
        Some(1),
        "it knows that the other one is first"
    );
    a.acquire("n", &queue).await;
    assert_eq!(
        (b.stands_at("n").await, a.stands_at("n").await),
        (Some(0), Some(1))
    );
}

/// Expired waiters are forgotten when their documents have gone, at the next reading.
#[tokio::test(start_paused = true)]
async fn expired_waiters_are_forgotten_when_their_documents_are_gone() {
    let [expired, alive] = Provider::several();
    let queue = Queue::new();
    expired.enter("n", &queue).await;
    alive.enter("n", &queue).await;
    assert_eq!(ahead(&alive.lines, "n"), Some(1));
    // The keeper ends as with its process: the document stays.
    let keeper = lock(&expired.lines.state).keeper.take().unwrap();
    keeper.abort();
    sleep(WAITER_KEPT + LINE_READ).await;
    assert_eq!(alive.stands_at("n").await, Some(0));
    assert_eq!(ahead(&alive.lines, "n"), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_all_lines_for_good() {
    let [a, b] = Provider::several();
    let queue = Queue::new();
    for name in 0..1200 {
        a.lines
            .enter(&Arc::from(name.to_string()), queue.user(), 1, true, None);
    }
    b.enter("7", &queue).await;
    assert_eq!(b.documents("7").await.len(), 2);
    a.lines.leave_all().await;
    assert_eq!(b.documents("7").await.len(), 1);
    assert_eq!(b.documents("1199").await, []);
    a.enter("late", &queue).await;
    a.acquire("7", &queue).await;
    assert_eq!(b.documents("late").await, []);
    assert_eq!(b.documents("7").await.len(), 1, "the other one stays");
    assert!(a.lines.is_empty());
}

//! What the waiters of a provider wait for: releases in other processes, which a change stream reports, and the time at
//! which they look again.
//!
//! | file | what it has |
//! |---|---|
//! | `subscription.rs` | the registration of one waiter |
//! | `rest.rs` | when a waiter asks again: all of these rules |
//! | `waiters.rs` | all waiters, in the order of the times at which they are due |
//! | `looker.rs` | the task that wakes due waiters, or looks at the locks of many with one query |
//! | `stream.rs` | the task that reads the change stream |
//! | `filter.rs` | the names in the filter of the stream |
//! | `cost.rs` | whether the stream costs more than it brings |

mod cost;
mod filter;
mod looker;
mod rest;
mod stream;
mod subscription;
mod waiters;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lease::Turn;
use crate::lease::given_up::GivenUp;
use crate::line::{Lines, Sighting};
use crate::moment::Moment;
use crate::options::Config;
use crate::queue::Holder;
use crate::store::Store;
use crate::sync::lock;
use crate::timing::{POLL_BESIDE_STREAM, STREAM_SILENT};
use cost::StreamCost;
use filter::Filter;
use looker::{LOOK_FROM, Looker};
#[cfg(test)]
pub(crate) use rest::{OWN_REQUESTS, REPLIES_BEFORE_STREAM};
use rest::{Outlook, Rest, moments};
pub(crate) use rest::{Pauses, left_to_others};
use stream::StreamState;
pub(crate) use subscription::Subscription;
use waiters::{Waiter, Waiters};

/// Wakes the waiters for locks that other processes hold: when the change stream reports a release, and when it is time
/// to look again. One stream and one task for the looks serve the whole provider, and they exist only while there are
/// waiters. A wake-up is a hint: a waiter that is woken sends an acquire request.
pub(crate) struct ReleaseNotifier {
    store: Arc<Store>,
    /// The order of the waiters of all processes.
    lines: Arc<Lines>,
    /// The ids of claims that this process has given up: a lock that one of them has is not busy.
    given_up: Arc<GivenUp>,
    /// The time for which a lock stays taken after a lease that was not released.
    takeover_margin: Duration,
    /// The longest pause of a waiter.
    longest_pause: Duration,
    /// The number of waiters whose locks are held, registered or not.
    waiting: AtomicUsize,
    state: Mutex<State>,
    /// Wakes the task for the looks when a waiter is due earlier than it knows.
    look: Notify,
}

/// One waiter whose lock is held, counted until it is dropped.
pub(crate) struct Counted(Arc<ReleaseNotifier>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

struct State {
    waiters: Waiters,
    looker: Looker,
    stream: StreamState,
    filter: Filter,
    cost: StreamCost,
    /// The task that opens and reads the stream.
    stream_task: Option<JoinHandle<()>>,
    /// The time of the stream's last reply, with or without a release.
    last_reply: Instant,
    /// The time at which a waiter last came or left.
    last_used: Instant,
    /// The number of waiters from which on one query looks at their locks.
    look_from: usize,
    /// Whether the provider is shut down.
    is_stopped: bool,
}

impl ReleaseNotifier {
    /// A notifier with a change stream, unless wake-ups are switched off.
    pub(crate) fn new(store: Arc<Store>, lines: Arc<Lines>, given_up: Arc<GivenUp>, config: &Config) -> Self {
        let now = Instant::now();
        let state = State {
            waiters: Waiters::default(),
            looker: Looker::default(),
            stream: if config.wake_up {
                StreamState::Closed
            } else {
                StreamState::Off
            },
            filter: Filter::new(now),
            cost: StreamCost::new(now),
            stream_task: None,
            last_reply: now,
            last_used: now,
            look_from: LOOK_FROM,
            is_stopped: false,
        };
        Self {
            store,
            lines,
            given_up,
            takeover_margin: config.options.takeover_margin,
            longest_pause: (POLL_BESIDE_STREAM * 2).max(*config.retry_interval.end()),
            waiting: AtomicUsize::new(0),
            state: Mutex::new(state),
            look: Notify::new(),
        }
    }

    /// Registers the caller that has the turn of a name, until the turn passes on. A release before the stream reports the
    /// lock is not known, so the waiter is due at once as soon as it does.
    pub(crate) fn subscribe<'t>(self: &Arc<Self>, turn: &'t Turn, backoff: Backoff) -> Subscription<'t> {
        let woken = Arc::new(Notify::new());
        let (entry, mut state) = (turn.entry(), lock(&self.state));
        let is_outdated = state.reports(entry.name());
        let now = Instant::now();
        let rest = Rest::new(now, backoff, is_outdated);
        let waiter = Waiter::new(&woken, entry, rest);
        state.waiters.add(waiter);
        state.last_used = now;
        drop(state);
        Subscription::new(self, turn, woken)
    }

    /// Removes a waiter, which is to be dropped without the mutex.
    fn unsubscribe(&self, name: &Arc<str>) -> Option<Waiter> {
        let (mut state, now) = (lock(&self.state), Instant::now());
        state.last_used = now;
        state.filter.leave(now, name);
        let removed = state.waiters.remove(name);
        if state.waiters.is_empty() {
            self.look.notify_one();
        }
        drop(state);
        self.lines.waiter_left(name);
        removed
    }

    /// Counts a waiter whose lock is held, registered or not, until the value is dropped.
    pub(crate) fn count(self: &Arc<Self>) -> Counted {
        self.waiting.fetch_add(1, Relaxed);
        Counted(Arc::clone(self))
    }

    /// Whether so many locks are awaited that one query looks at all of them: then a waiter registers as soon as its lock
    /// is held, and sends no more requests of its own.
    pub(crate) fn has_many(&self) -> bool {
        self.waiting.load(Relaxed) >= lock(&self.state).look_from
    }

    /// Has a waiter rest after a reply that found its lock held, and returns for how long.
    fn rest(self: &Arc<Self>, state: &mut State, name: &Arc<str>, remaining: Option<Duration>) -> Duration {
        let Some(outlook) = self.outlook(state, name) else {
            return Duration::ZERO;
        };
        let rest = |rest: &mut Rest| rest.held(Moment::present(), &outlook, remaining);
        let pause = state.waiters.change(name, rest).unwrap_or_default();
        self.reschedule(state);
        pause
    }

    /// What is known of the lock of a waiter that rests now.
    fn outlook(self: &Arc<Self>, state: &mut State, name: &Arc<str>) -> Option<Outlook> {
        self.ensure_stream(state);
        let waiter = state.waiters.get(name)?;
        let (oldest, since) = (waiter.entry.waiting_since(), waiter.rest().since());
        let since = oldest.map_or(since, |oldest| oldest.min(since));
        Some(Outlook {
            is_reported: state.reports(name),
            is_too_costly: state.stream.is_too_costly(),
            standing: self.lines.waits(name, since, state.stream.is_expected()),
        })
    }

    /// Whether a waiter for this lock relies on events.
    #[cfg(test)]
    pub(crate) fn wakes(&self, name: &Arc<str>) -> bool {
        lock(&self.state).waiters.get(name).is_some()
    }

    /// Has the waiter for a lock that was released send a request after the moments of those before it in line. Returns
    /// whether a waiter or a line is concerned.
    fn released(self: &Arc<Self>, name: &Arc<str>) -> bool {
        let standing = self.lines.standing(name);
        let mut state = lock(&self.state);
        let released = |rest: &mut Rest| rest.released(Instant::now(), standing);
        match state.waiters.change(name, released) {
            Some(true) => state.waiters.wake(name, Rest::end),
            Some(false) => self.reschedule(&mut state),
            None => return standing.is_some(),
        }
        true
    }

    /// Has the waiter for a lock that this process has released send a request as [`released`](Self::released) does, and
    /// returns whether nobody stands before it in line.
    pub(crate) fn released_here(self: &Arc<Self>, name: &Arc<str>) -> bool {
        self.released(name);
        moments(self.lines.standing(name)).is_zero()
    }

    /// Notes that a claim has acquired a lock: a waiter that was about to send a request rests on. Returns whether a
    /// waiter or a line is concerned.
    fn acquired(self: &Arc<Self>, name: &Arc<str>, lock_id: &Arc<str>) -> bool {
        let Sighting { is_own, is_in_line } = self.lines.held_by(name, lock_id);
        if is_own {
            return is_in_line;
        }
        let mut state = lock(&self.state);
        let is_looking = state.looker.has_queries();
        let Some(waiter) = state.waiters.get(name) else {
            return is_in_line;
        };
        if waiter.rest().rests_on(is_in_line) {
            // A request or a query that has no reply yet stays known as one.
            if !is_looking && !waiter.entry.has_requests() {
                let (id, zero) = (Arc::clone(lock_id), Duration::ZERO);
                let holder = Holder::new(Instant::now(), Some(id), Some(zero), None);
                waiter.entry.front().set_held(holder);
            }
            self.rest(&mut state, name, None);
        }
        true
    }

    /// Has a waiter that has sent no request yet send one at this time, unless another provider acquires the lock before.
    /// Without a stream it looks at that time.
    fn rest_for_place(self: &Arc<Self>, state: &mut State, name: &Arc<str>, until: Instant) {
        self.ensure_stream(state);
        let is_reported = state.reports(name);
        let place = |rest: &mut Rest| rest.place(until, is_reported);
        state.waiters.change(name, place);
        self.reschedule(state);
    }

    /// Whether the stream reports this lock at present.
    pub(crate) fn hears_of(&self, name: &str) -> bool {
        lock(&self.state).reports(name)
    }

    /// Whether the provider has a stream, or opens one when it waits.
    pub(crate) fn expects_stream(&self) -> bool {
        lock(&self.state).stream.is_expected()
    }

    /// Opens the stream for a provider that stands in line without a waiter.
    pub(crate) fn listen(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.last_used = Instant::now();
        self.ensure_stream(&mut state);
    }

    /// Ends wake-ups for good; the stream is closed after its next reply.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.state);
        state.is_stopped = true;
        state.stream = StreamState::Off;
        state.waiters.wake_all();
        self.look.notify_one();
    }

    /// Whether the change stream is open and replies at present.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.state).is_open()
    }

    /// Whether there is no waiter, no open stream, and no task for the looks.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.waiters.is_empty() && state.stream != StreamState::Open && state.looker.is_idle()
    }

    /// Has queries look at locks as soon as so many are awaited.
    #[cfg(test)]
    pub(crate) fn look_from(&self, number: usize) {
        lock(&self.state).look_from = number;
    }
}

impl State {
    /// Whether the stream reports releases of this lock at present.
    fn reports(&self, name: &str) -> bool {
        self.is_open() && self.filter.present().admits(name)
    }

    fn is_open(&self) -> bool {
        self.stream == StreamState::Open && self.last_reply.elapsed() < STREAM_SILENT
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use mongodb::error::{CommandError, ErrorKind};
    use serde::Deserialize;
    use serde::de::value::MapDeserializer;
    use tokio::time::timeout;

    use super::*;
    use crate::lease::Queues;
    use crate::once::MarkEnd;
    use crate::store::{AcquireRequest, LeaseId, MarkRequest, MemoryStore, ProviderMark, StreamFilter};
    use crate::timing::{LOOKER_CHECK, STREAM_POLL_MIN, STREAM_UNAVAILABLE};
    use crate::{FencingToken, LockError};

    const PAUSES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_millis(800);

    fn with_wake_up(wake_up: bool) -> Arc<ReleaseNotifier> {
        let store = Arc::new(Store::Memory(Arc::new(MemoryStore::new())));
        let config = Config {
            wake_up,
            ..Config::default()
        };
        let (mark, owner) = (ProviderMark::random(), Arc::from("owner"));
        let lines = Arc::new(Lines::new(Arc::clone(&store), mark, owner, true));
        Arc::new(ReleaseNotifier::new(store, lines, Arc::default(), &config))
    }

    fn in_memory() -> Arc<ReleaseNotifier> {
        with_wake_up(true)
    }

    /// A waiter for the lock `n`, which rests.
    fn subscribe(notifier: &Arc<ReleaseNotifier>) -> Subscription<'static> {
        subscribe_to(notifier, "n")
    }

    /// A waiter that rests, and keeps its turn for good.
    fn subscribe_to(notifier: &Arc<ReleaseNotifier>, name: &str) -> Subscription<'static> {
        let turn = Queues::new().join(&Arc::from(name)).try_turn().unwrap();
        let waiter = notifier.subscribe(Box::leak(Box::new(turn)), Backoff::new(PAUSES));
        waiter.rest(None);
        waiter
    }

    /// A command error with this code, as the server sends it.
    fn command_error(code: i32) -> LockError {
        let reply = MapDeserializer::<_, serde::de::value::Error>::new([("code", code)].into_iter());
        let error = CommandError::deserialize(reply).unwrap();
        LockError::Mongo(ErrorKind::Command(error).into())
    }

    /// Polls as a waiter does for this time, and returns whether the stream is open then.
    async fn opens_within(subscription: &Subscription<'_>, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !subscription.is_open() && Instant::now() < end {
            subscription.rest(None);
            tokio::time::sleep(Duration::from_millis(800)).await;
        }
        subscription.is_open()
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_stream_is_tried_again_after_minutes() {
        for code in [13, 40573] {
            let notifier = in_memory();
            assert!(!notifier.retries_after(&command_error(code)));
            let waiter = subscribe(&notifier);
            assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3 / 4).await);
            assert!(opens_within(&waiter, STREAM_UNAVAILABLE / 2).await);
        }
    }

    /// There is no waiter when the pause ends, and no task lives until the next waiter comes.
    #[tokio::test(start_paused = true)]
    async fn an_unavailable_stream_is_tried_again_for_the_next_waiter() {
        let notifier = in_memory();
        notifier.retries_after(&command_error(13));
        drop(subscribe(&notifier));
        tokio::time::sleep(STREAM_UNAVAILABLE * 2).await;
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
        let waiter = subscribe(&notifier);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(waiter.is_open());
    }

    /// A stream that has cost too much is closed for a while, in which its waiters poll.
    #[tokio::test(start_paused = true)]
    async fn the_stream_is_opened_again_after_a_time_of_polling() {
        let notifier = in_memory();
        let waiter = subscribe(&notifier);
        assert!(opens_within(&waiter, Duration::from_secs(1)).await);
        lock(&notifier.state).stream_task.as_ref().unwrap().abort();
        tokio::task::yield_now().await;
        notifier.poll_instead(STREAM_POLL_MIN);
        assert!(!opens_within(&waiter, STREAM_POLL_MIN * 3 / 4).await);
        assert!(opens_within(&waiter, STREAM_POLL_MIN / 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn every_other_error_is_tried_again_soon() {
        let (notifier, connection) = (in_memory(), std::io::Error::other("cut"));
        let others = [20, 40, 136, 280, 8000].map(command_error);
        for error in others.into_iter().chain([LockError::Mongo(connection.into())]) {
            assert!(notifier.retries_after(&error), "{error}");
            assert_eq!(lock(&notifier.state).stream, StreamState::Closed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stopped_stays_off() {
        let notifier = in_memory();
        let waiter = subscribe(&notifier);
        notifier.stop();
        notifier.retries_after(&command_error(13));
        assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3).await);
        let off = with_wake_up(false);
        let waiter = subscribe(&off);
        assert!(!opens_within(&waiter, STREAM_UNAVAILABLE * 3).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_counts_as_open_while_it_answers() {
        let notifier = in_memory();
        let subscription = subscribe(&notifier);
        tokio::time::sleep(STREAM_SILENT * 3).await;
        assert!(subscription.is_open(), "replies without a release count");
        // There are no replies from here on.
        lock(&notifier.state).stream_task.as_ref().unwrap().abort();
        assert!(subscription.is_open());
        tokio::time::sleep(STREAM_SILENT).await;
        assert!(!subscription.is_open());
    }

    /// A request of the waiter has acquired the lock after the reply to another one: only a request can tell.
    #[tokio::test(start_paused = true)]
    async fn a_waiter_whose_own_claim_has_the_lock_is_woken_by_a_look() {
        let notifier = with_wake_up(false);
        notifier.look_from(1);
        let Store::Memory(memory) = &*notifier.store else {
            unreachable!("these tests have the store in memory")
        };
        let lock_id: Arc<str> = Arc::from("owner#own");
        let key = LeaseId {
            name: "n".into(),
            lock_id: Arc::clone(&lock_id),
        };
        let request = AcquireRequest {
            wants_dates: false,
            expiry: Duration::from_secs(3600),
            tokens: 1,
            takeover_margin: Duration::ZERO,
        };
        memory.claim_one(&key, request);
        let waiter = subscribe(&notifier);
        waiter.set_claim(&lock_id, false);
        let begun = Instant::now();
        waiter.woken().await;
        assert!(begun.elapsed() < *PAUSES.end(), "{:?}", begun.elapsed());
    }

    /// Only a waiter for work that may succeed once asks the server about a mark; to others it is a holder as any.
    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_ends_with_a_mark_is_woken_by_a_look_at_one() {
        let notifier = with_wake_up(false);
        notifier.look_from(1);
        let Store::Memory(memory) = &*notifier.store else {
            unreachable!("these tests have the store in memory")
        };
        let key = LeaseId {
            name: "n".into(),
            lock_id: "owner#other".into(),
        };
        let request = AcquireRequest {
            wants_dates: true,
            expiry: Duration::from_secs(3600),
            tokens: 1,
            takeover_margin: Duration::ZERO,
        };
        memory.claim_one(&key, request);
        let waiter = subscribe(&notifier);
        for ends_with_mark in [false, true] {
            waiter.set_claim(&"owner#own".into(), ends_with_mark);
            waiter.rest(None);
            let is_woken = timeout(*PAUSES.end() * 3, waiter.woken()).await.is_ok();
            assert!(!is_woken, "another holder has the lock");
        }
        memory.mark(&MarkRequest {
            key,
            token: FencingToken::new(0),
            end: MarkEnd::After(Duration::from_secs(3600)),
        });
        for ends_with_mark in [false, true] {
            waiter.set_claim(&"owner#own".into(), ends_with_mark);
            waiter.rest(None);
            let is_woken = timeout(*PAUSES.end() * 3, waiter.woken()).await.is_ok();
            assert_eq!(is_woken, ends_with_mark);
        }
    }

    /// The task that wakes waiters runs on a runtime that nothing drives at present.
    #[tokio::test]
    async fn a_waiter_does_not_depend_on_the_runtime_of_another_one() {
        let notifier = with_wake_up(false);
        let other = std::thread::spawn({
            let notifier = Arc::clone(&notifier);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                let waiter = runtime.block_on(async { subscribe_to(&notifier, "other") });
                (runtime, waiter)
            }
        });
        let (runtime, first) = other.join().unwrap();
        let waiter = subscribe(&notifier);
        let begun = Instant::now();
        waiter.woken().await;
        assert!(begun.elapsed() < LOOKER_CHECK * 4, "{:?}", begun.elapsed());
        drop(first);
        runtime.shutdown_background();
    }

    /// The stream changes to a filter that was made before the waiter came.
    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_the_stream_stops_to_report_looks_at_once() {
        let notifier = in_memory();
        notifier.opened(&StreamFilter::All);
        let waiter = subscribe(&notifier);
        waiter.woken().await;
        assert!(
            waiter.rest(None) > Duration::from_secs(1),
            "the stream reports the lock"
        );
        let others = StreamFilter::Names(Arc::new(["other".into()].into()));
        notifier.note_reply(&others);
        let begun = Instant::now();
        waiter.woken().await;
        assert!(
            begun.elapsed() < Duration::from_millis(10),
            "{:?}",
            begun.elapsed()
        );
    }
}

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
pub(crate) use rest::{OWN_REQUESTS, REPLIES_BEFORE_WAIT};
use rest::{Outlook, Rest, time_slots};
pub(crate) use rest::{Pauses, left_to_others};
use stream::StreamState;
pub(crate) use subscription::Subscription;
use waiters::{FrontWaiter, Waiters};

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
    state: Mutex<NotifierState>,
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

struct NotifierState {
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
        let state = NotifierState {
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
        let waiter = FrontWaiter::new(&woken, entry, rest);
        state.waiters.add(waiter);
        state.last_used = now;
        drop(state);
        Subscription::new(self, turn, woken)
    }

    /// Removes a waiter, which is to be dropped without the mutex.
    fn unsubscribe(&self, name: &Arc<str>) -> Option<FrontWaiter> {
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
    fn rest(
        self: &Arc<Self>,
        state: &mut NotifierState,
        name: &Arc<str>,
        remaining: Option<Duration>,
    ) -> Duration {
        let Some(outlook) = self.outlook(state, name) else {
            return Duration::ZERO;
        };
        let rest = |rest: &mut Rest| rest.held(Moment::present(), &outlook, remaining);
        let pause = state.waiters.change(name, rest).unwrap_or_default();
        self.reschedule(state);
        pause
    }

    /// What is known of the lock of a waiter that rests now.
    fn outlook(self: &Arc<Self>, state: &mut NotifierState, name: &Arc<str>) -> Option<Outlook> {
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

    /// Has the waiter for a lock that was released send a request after the time slots of those before it in line. Returns
    /// whether a waiter or a line is concerned.
    fn released(self: &Arc<Self>, name: &Arc<str>) -> bool {
        let standing = self.lines.standing(name);
        let mut state = lock(&self.state);
        let released = |rest: &mut Rest| rest.released(Instant::now(), standing);
        match state.waiters.change(name, released) {
            Some(true) => state.waiters.wake(name, Rest::finish),
            Some(false) => self.reschedule(&mut state),
            None => return standing.is_some(),
        }
        true
    }

    /// Has the waiter for a lock that this process has released send a request as [`released`](Self::released) does, and
    /// returns whether no other provider stands before it in line.
    pub(crate) fn released_here(self: &Arc<Self>, name: &Arc<str>) -> bool {
        self.released(name);
        time_slots(self.lines.standing(name)).is_zero()
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
    fn rest_while_yielding(self: &Arc<Self>, state: &mut NotifierState, name: &Arc<str>, until: Instant) {
        self.ensure_stream(state);
        let is_reported = state.reports(name);
        let yields = |rest: &mut Rest| rest.yields(until, is_reported);
        state.waiters.change(name, yields);
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

impl NotifierState {
    /// Whether the stream reports releases of this lock at present.
    fn reports(&self, name: &str) -> bool {
        self.is_open() && self.filter.present().admits(name)
    }

    fn is_open(&self) -> bool {
        self.stream == StreamState::Open && self.last_reply.elapsed() < STREAM_SILENT
    }
}

#[cfg(test)]
mod tests;

//! What the waiter of one name waits for: what `notifier/mod.rs`, `waiters.rs`, `looker.rs`, `stream.rs` and `subscription.rs` of
//! the library do. [`rest`] decides.

// The formatter would look for the file of its unit tests in a wrong place.
#[rustfmt::skip]
#[path = "../../../../mongolock/src/notifier/rest.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod rest;

use std::time::Duration;

use rest::{Outlook, Rest};
pub(crate) use rest::{Pauses, left_to_others};

use crate::backoff::Backoff;
use crate::id::Id;
use crate::moment::{Luck, Moment};
use crate::network::{Body, Event, Failure, Running};
use crate::process::{Cx, Process};
use crate::queue::{Holder, RequestNumber};
use crate::setup::{Mutant, Setup};
use crate::store::RunningLease;
use crate::time::Instant;
use crate::timing::{LOOK_ALLOWED_POLL, LOOK_GAP_PER_NAME, LOOK_LIMIT, NO_REPLY};

/// The number of looks in flight.
const MAX_LOOKS: usize = 3;

#[derive(Clone, Hash)]
pub(crate) struct Notifier {
    stream: Stream,
    waiter: Option<FrontWaiter>,
    looks: Vec<Look>,
    /// The number of the last look.
    last_look: u64,
    /// The time before which no further look is sent.
    next_look: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    Off,
    Open,
    /// It has failed, and is opened again at this time.
    Failed(Instant),
}

/// The waiter with the turn.
#[derive(Clone, Hash)]
struct FrontWaiter {
    rest: Rest,
    /// Whether its `Notify` keeps a wake-up.
    is_woken: bool,
    claim: Option<Id>,
}

#[derive(Clone, Hash)]
struct Look {
    no: u32,
    count: u64,
    number: RequestNumber,
    until: Instant,
}

impl Notifier {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            stream: if setup.stream { Stream::Open } else { Stream::Off },
            waiter: None,
            looks: Vec::new(),
            last_look: 0,
            next_look: None,
        }
    }

    /// `State::reports`. Other names keep the stream open.
    pub(crate) fn reports(&self) -> bool {
        self.stream == Stream::Open
    }

    /// `StreamState::is_expected`.
    pub(crate) fn expects_stream(&self) -> bool {
        self.stream != Stream::Off
    }

    pub(crate) fn next_time(&self) -> Option<Instant> {
        let due = self.waiter.as_ref().and_then(|waiter| waiter.rest.due());
        let looks = self.looks.iter().map(|look| look.until);
        let reopened = match self.stream {
            Stream::Failed(until) => Some(until),
            Stream::Off | Stream::Open => None,
        };
        // A waiter that looks waits for the least time between two looks.
        let due = due.map(|due| due.at.max(self.next_look.unwrap_or(due.at)));
        looks.chain(due).chain(reopened).min()
    }

    pub(crate) fn take_wake(&mut self) -> bool {
        self.waiter
            .as_mut()
            .is_some_and(|waiter| std::mem::take(&mut waiter.is_woken))
    }

    pub(crate) fn set_claim(&mut self, claim: Option<Id>) {
        if let Some(waiter) = &mut self.waiter {
            waiter.claim = claim;
        }
    }

    /// `Waiters::wake`.
    fn wake(&mut self, end: impl FnOnce(&mut Rest)) {
        if let Some(waiter) = &mut self.waiter {
            end(&mut waiter.rest);
            waiter.is_woken = true;
        }
    }

    /// `set_stream`, and `Waiters::outdate`.
    fn set_stream(&mut self, stream: Stream) {
        self.stream = stream;
        if let Some(waiter) = &mut self.waiter {
            waiter.rest.outdated();
        }
    }
}

impl Process {
    /// `ReleaseNotifier::subscribe`.
    pub(crate) fn register(&mut self, cx: &Cx<'_>, backoff: Backoff) {
        let is_outdated = self.notifier.reports() && !cx.setup.has(Mutant::NoLookAfterSubscription);
        self.notifier.waiter = Some(FrontWaiter {
            rest: Rest::new(Instant::now(), backoff, is_outdated),
            is_woken: false,
            claim: None,
        });
    }

    /// `ReleaseNotifier::unsubscribe`.
    pub(crate) fn unregister(&mut self) {
        self.notifier.waiter = None;
        self.line_waiter_left();
    }

    /// `Subscription::finish_rest`.
    pub(crate) fn rest_ends(&mut self) {
        if let Some(waiter) = &mut self.notifier.waiter {
            waiter.rest.finish();
        }
    }

    /// `ReleaseNotifier::rest`.
    pub(crate) fn rest(&mut self, cx: &mut Cx<'_>, remaining: Option<Duration>) -> Duration {
        let Some(waiter) = &self.notifier.waiter else {
            return Duration::ZERO;
        };
        let since = self
            .waiting_since()
            .map_or(waiter.rest.since(), |oldest| oldest.min(waiter.rest.since()));
        let outlook = Outlook {
            is_reported: self.notifier.reports(),
            is_too_costly: false,
            standing: self.line_waits(cx, since),
        };
        let waiter = self.notifier.waiter.as_mut();
        waiter.map_or(Duration::ZERO, |waiter| {
            waiter.rest.held(Moment::present(), &outlook, remaining)
        })
    }

    /// `ReleaseNotifier::rest_while_yielding`.
    pub(crate) fn rest_while_yielding(&mut self, until: Instant) {
        let is_reported = self.notifier.reports();
        if let Some(waiter) = &mut self.notifier.waiter {
            waiter.rest.yields(until, is_reported);
        }
    }

    /// `ReleaseNotifier::note_event`.
    pub(crate) fn note_event(&mut self, cx: &mut Cx<'_>, event: Event) {
        match event {
            Event::Released => self.released_event(cx),
            Event::Acquired(id) if id.process != self.index => self.acquired_event(cx, id),
            Event::Acquired(_) => {}
        }
    }

    /// `ReleaseNotifier::released`.
    fn released_event(&mut self, cx: &Cx<'_>) {
        let standing = self.standing();
        let Some(waiter) = &mut self.notifier.waiter else {
            return;
        };
        let is_forgotten = !waiter.rest.is_resting() && cx.setup.has(Mutant::ReleaseInFlightIsForgotten);
        if waiter.rest.released(Instant::now(), standing) && !is_forgotten {
            self.notifier.wake(Rest::finish);
        }
    }

    /// `ReleaseNotifier::acquired`.
    fn acquired_event(&mut self, cx: &mut Cx<'_>, id: Id) {
        self.line_held_by(&id.text());
        let is_in_line = self.lines.has_line();
        let rests_on = |waiter: &FrontWaiter| waiter.rest.rests_on(is_in_line);
        if !self.notifier.waiter.as_ref().is_some_and(rests_on) {
            return;
        }
        if self.notifier.looks.is_empty() && self.requests.is_empty() {
            let holder = Holder::new(Instant::now(), Some(id.text()), Some(Duration::ZERO), None);
            self.set_held(holder);
            cx.judge.heard_of(self.index, id);
        }
        self.rest(cx, None);
    }

    /// The stream fails: `stream::run`.
    pub(crate) fn stop_stream(&mut self) {
        let pauses = Duration::from_millis(100)..=Duration::from_secs(10);
        let pause = Backoff::new(pauses).next(Luck::draw());
        self.notifier.set_stream(Stream::Failed(Instant::now() + pause));
    }

    /// The stream is opened again, if it is time for that: `opened`.
    pub(crate) fn run_stream(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_due = matches!(self.notifier.stream, Stream::Failed(until) if until <= Instant::now());
        if is_due {
            self.notifier.set_stream(Stream::Open);
            self.read_line(cx);
        }
        is_due
    }

    /// The task for the looks: `ReleaseNotifier::step`. There is one waiter, fewer than from which on a look serves all.
    pub(crate) fn run_looker(&mut self, cx: &mut Cx<'_>) -> bool {
        let now = Instant::now();
        let looks = self.notifier.looks.len();
        self.notifier.looks.retain(|look| look.until > now);
        let has_ended = self.notifier.looks.len() < looks;
        let Some(waiter) = &mut self.notifier.waiter else {
            return has_ended;
        };
        let Some(due) = waiter.rest.due().filter(|due| due.at <= now) else {
            return has_ended;
        };
        if due.asks {
            self.notifier.wake(Rest::finish);
            return true;
        }
        if !waiter.rest.looks() {
            self.notifier.wake(Rest::ask);
            return true;
        }
        if self.notifier.next_look.is_some_and(|next| next > now) {
            return has_ended;
        }
        self.queue.front.request_due(now);
        cx.judge.would_ask(self.index);
        if self.notifier.looks.len() >= MAX_LOOKS {
            self.notifier.next_look = Some(now + LOOK_ALLOWED_POLL);
            return true;
        }
        self.look(cx, now);
        true
    }

    /// `State::begin_look`, and the query.
    fn look(&mut self, cx: &mut Cx<'_>, now: Instant) {
        let number = self.queue.front.request_sent(now);
        cx.judge.asks(self.index);
        let no = self.send(cx, Body::Look);
        let notifier = &mut self.notifier;
        notifier.last_look += 1;
        let count = notifier.last_look;
        if let Some(waiter) = &mut notifier.waiter {
            waiter.rest.look_sent(now, count);
        }
        notifier.next_look = Some(now + LOOK_GAP_PER_NAME);
        let until = now + LOOK_LIMIT + NO_REPLY;
        notifier.looks.push(Look {
            no,
            count,
            number,
            until,
        });
    }

    /// The reply to a look: `looked` and `look_failed`.
    pub(crate) fn look_replied(&mut self, cx: &mut Cx<'_>, no: u32, reply: Result<Option<Running>, Failure>) {
        let Some(index) = self.notifier.looks.iter().position(|look| look.no == no) else {
            return;
        };
        let look = self.notifier.looks.remove(index);
        let now = Instant::now();
        if reply.is_ok() {
            self.read_line(cx);
            self.queue.front.replied(now, look.number);
        }
        let counts = |waiter: &FrontWaiter| waiter.rest.awaits_look(look.count);
        if !self.notifier.waiter.as_ref().is_some_and(counts) {
            return;
        }
        let failure = match reply {
            Ok(running) => return self.looked(cx, running),
            Err(failure) => failure,
        };
        self.set_failed(failure.error());
        if let Some(waiter) = &mut self.notifier.waiter {
            waiter.rest.look_failed(Moment::present());
        }
    }

    /// `ReleaseNotifier::looked`.
    fn looked(&mut self, cx: &mut Cx<'_>, running: Option<Running>) {
        let claim = self.notifier.waiter.as_ref().and_then(|waiter| waiter.claim);
        let holder = running.and_then(|running| running.holder);
        cx.judge.named(self, holder);
        let is_own = holder.is_some_and(|id| claim == Some(id) || self.has_given_up(cx, id));
        let Some(running) = running.filter(|_| !is_own) else {
            self.queue.front.set_no_holder();
            let standing = self.standing().filter(|_| !is_own);
            let Some(waiter) = &mut self.notifier.waiter else {
                return;
            };
            if is_own || waiter.rest.found_free(Instant::now(), standing) {
                self.notifier.wake(Rest::finish);
            }
            return;
        };
        if let Some(id) = holder {
            self.line_held_by(&id.text());
        }
        let lease = RunningLease {
            holder: holder.map(Id::text),
            held_for: None,
            remaining: running.remaining,
        };
        self.set_holder(Holder::of_lease(Instant::now(), &lease));
        let Some(waiter) = &mut self.notifier.waiter else {
            return;
        };
        let is_resting = waiter.rest.is_resting();
        waiter.rest.found_held();
        if is_resting {
            self.rest(cx, Some(running.remaining));
        }
    }
}

//! The task that has the waiters which rest send requests, or looks at their locks with one query.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use super::rest::Rest;
use super::waiters::FrontWaiter;
use super::{NotifierState, ReleaseNotifier};
use crate::lease::Entry;
use crate::moment::Moment;
use crate::queue::{Holder, RequestNumber};
use crate::store::{AdmissionClass, Looked, RunningLeases, driver_error};
use crate::sync::lock;
use crate::timing::{
    LINE_LOOK_LIMIT, LOOK_ALLOWED_POLL, LOOK_GAP_MAX, LOOK_GAP_PER_NAME, LOOK_LIMIT, LOOKER_CHECK,
};
use crate::{LockError, lock_id, permit_id, trace};

/// The number of waiters from which on one query looks at their locks. Fewer of them send requests of their own: a free
/// lock is acquired with one command then, and not with two.
pub(super) const LOOK_FROM: usize = 8;

/// The largest number of names in one query: the server replies to it within some milliseconds.
const BATCH: usize = 1000;

/// The number of queries in flight; each may keep a connection.
const MAX_LOOKS: usize = 3;

/// The state of the task.
#[derive(Default)]
pub(super) struct Looker {
    task: Option<JoinHandle<()>>,
    /// The number of queries in flight.
    in_flight: usize,
    /// The time at which the task wakes up by itself; a waiter that is due later need not wake it.
    wakes_at: Option<Instant>,
    /// The time before which no further query is sent.
    next: Option<Instant>,
    /// While [`MAX_LOOKS`] queries are in flight: the time of the next attempt at one, which notes once more that the names that
    /// are due wait for a query.
    polls: Option<Instant>,
    /// The last time at which the task decided what to do.
    stepped: Option<Instant>,
    /// The number of the last query.
    last: u64,
}

/// What the task does next.
enum LookerStep {
    Look(Look),
    /// The task waits until this time, or until a waiter is due earlier.
    Wait(Option<Instant>),
    End,
}

/// One query.
struct Look {
    /// A waiter ignores the replies to all queries but the last one that looks at its lock.
    number: u64,
    names: Vec<Arc<str>>,
    /// The queues of these names, and the query's number in each: a waiter may leave before the reply, while others wait
    /// behind it.
    entries: Vec<(Arc<Entry>, RequestNumber)>,
    /// Those of the names whose lines are read as well.
    lines: Vec<Arc<str>>,
}

/// A queue, and the number of the query that is sent now.
fn numbered(entry: Arc<Entry>) -> (Arc<Entry>, RequestNumber) {
    let number = entry.front().request_sent();
    (entry, number)
}

/// One query in flight, counted until it is dropped.
struct InFlight(Arc<ReleaseNotifier>);

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.0.state).looker.in_flight -= 1;
        self.0.look.notify_one();
    }
}

impl Looker {
    /// Whether a query has no reply yet.
    pub(super) fn has_queries(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether no task runs and no query is in flight.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.task.is_none() && self.in_flight == 0
    }
}

impl ReleaseNotifier {
    /// Starts the task, unless it runs: it ends with the runtime that it was started on.
    pub(super) fn ensure_looking(self: &Arc<Self>, state: &mut NotifierState) {
        if state.looker.task.as_ref().is_none_or(JoinHandle::is_finished) {
            state.looker.task = Some(crate::task::spawn(run(Arc::clone(self))));
        }
    }

    /// The next time at which a waiter that rests checks that the task works; `None` if it sends a request by itself. The
    /// task runs on the runtime of the waiter that came first, which may have ended, or may run nothing at present.
    pub(super) fn next_check(self: &Arc<Self>, name: &str) -> Option<Instant> {
        let mut state = lock(&self.state);
        let due = state.waiters.due_of(name)?.at;
        let now = Instant::now();
        if due + LOOKER_CHECK > now {
            return Some(due + LOOKER_CHECK);
        }
        let works = state.looker.stepped.is_some_and(|at| at.elapsed() < LOOKER_CHECK);
        self.ensure_looking(&mut state);
        works.then_some(now + LOOKER_CHECK)
    }

    /// Has the task look at the waiter that is due first.
    pub(super) fn reschedule(self: &Arc<Self>, state: &mut NotifierState) {
        self.ensure_looking(state);
        let next = state.next_due();
        if next.is_some_and(|next| state.looker.wakes_at.is_none_or(|wakes_at| next < wakes_at)) {
            self.look.notify_one();
        }
    }

    fn next_step(&self) -> LookerStep {
        let mut state = lock(&self.state);
        state.looker.stepped = Some(Instant::now());
        let step = self.step(&mut state);
        match &step {
            LookerStep::Look(_) => state.looker.in_flight += 1,
            LookerStep::Wait(until) => state.looker.wakes_at = *until,
            LookerStep::End => state.looker.task = None,
        }
        step
    }

    fn step(&self, state: &mut NotifierState) -> LookerStep {
        if state.waiters.is_empty() || state.is_stopped {
            return LookerStep::End;
        }
        let now = Instant::now();
        state.wake_due(now);
        if state.next_look().is_none_or(|next| next > now) {
            return LookerStep::Wait(state.next_due());
        }
        let mut names = state.waiters.due_to_look(now, self.longest_pause, BATCH);
        names.retain(|name| !state.is_few() || state.waiters.looks(name));
        let mut entries = Vec::with_capacity(names.len());
        for name in &names {
            if let Some(waiter) = state.waiters.get(name) {
                // This is noted even if no query can be sent: "held" must not stay the last known status.
                waiter.entry.front().request_due();
                entries.push(Arc::clone(&waiter.entry));
            }
        }
        if state.looker.in_flight >= MAX_LOOKS {
            state.looker.polls = Some(now + LOOK_ALLOWED_POLL);
            return LookerStep::Wait(state.next_due());
        }
        let number = state.begin_look(&names, now);
        let lines = names.iter().filter(|name| state.waiters.looks(name));
        let lines = lines.cloned().collect();
        LookerStep::Look(Look {
            number,
            names,
            entries: entries.into_iter().map(numbered).collect(),
            lines,
        })
    }

    /// The reply to a query has arrived.
    fn looked(self: &Arc<Self>, look: &Look, running: &RunningLeases) {
        let mut rests = Vec::new();
        let mut state = lock(&self.state);
        for (entry, number) in &look.entries {
            entry.front().replied(*number);
        }
        for name in &look.names {
            let Some(waiter) = state.looked_at(look, name) else {
                continue;
            };
            let lease = running.get(name);
            // A late request of the waiter may have acquired the lock, a claim that this process has given up is to be
            // released, and a mark may end the wait: in these cases the waiter's next request finds out.
            let is_own = |id: &Arc<str>| {
                waiter.claim.as_ref() == Some(id)
                    || self.has_given_up(id)
                    || (waiter.ends_with_mark && lock_id::is_mark(id))
            };
            let is_own = lease.is_some_and(|lease| lease.holder.as_ref().is_some_and(is_own));
            let Some(lease) = lease.filter(|_| !is_own) else {
                // No document has the name that stands for all permits of a semaphore.
                if !permit_id::is_group(name) {
                    waiter.entry.front().set_no_holder();
                }
                // No waiter before it in line can acquire a lock that only this process can release.
                let standing = self.lines.standing(name).filter(|_| !is_own);
                let free = |rest: &mut Rest| is_own || rest.found_free(Instant::now(), standing);
                if state.waiters.change(name, free) == Some(false) {
                    self.reschedule(&mut state);
                } else {
                    state.waiters.wake(name, Rest::finish);
                }
                continue;
            };
            if let Some(lock_id) = &lease.holder {
                self.lines.held_by(name, lock_id);
            }
            waiter
                .entry
                .front()
                .set_holder(Holder::of_lease(Instant::now(), lease));
            let is_resting = waiter.rest().is_resting();
            state.waiters.change(name, Rest::found_held);
            if is_resting {
                let pause = self.rest(&mut state, name, Some(lease.remaining));
                rests.push((name, lease.remaining, pause));
            }
        }
        drop(state);
        // A subscriber to events may be slow.
        for (name, remaining, pause) in rests {
            trace::waiting(name, Some(remaining), pause);
        }
    }

    fn has_given_up(&self, lock_id: &str) -> bool {
        self.given_up.frees(Instant::now(), lock_id)
    }

    /// A query has failed: to its waiters it is a failed request, which is repeated. After a lasting error each of them
    /// finds out by a request of its own.
    fn look_failed(self: &Arc<Self>, look: &Look, error: &LockError) {
        let names = &look.names;
        let mut state = lock(&self.state);
        let is_transient = driver_error::is_transient(error);
        let mut first_pause = None;
        for name in names {
            let Some(waiter) = state.looked_at(look, name) else {
                continue;
            };
            waiter.entry.front().set_failed(error.clone());
            let failed = |rest: &mut Rest| rest.look_failed(Moment::present());
            let pause = state.waiters.change(name, failed).flatten();
            if is_transient {
                first_pause = first_pause.or(pause);
            } else {
                state.waiters.wake(name, Rest::finish);
            }
        }
        self.reschedule(&mut state);
        drop(state);
        if let (Some(pause), Some(first)) = (first_pause, names.first()) {
            trace::look_failed(names.len(), first, error, pause);
        }
    }
}

impl NotifierState {
    /// The waiter for a lock, if no later query looks at it.
    fn looked_at(&mut self, look: &Look, name: &str) -> Option<&mut FrontWaiter> {
        let waiter = self.waiters.get(name)?;
        waiter.rest().awaits_look(look.number).then_some(waiter)
    }

    /// Whether the waiters are so few that each of them sends a request of its own when it is due, unless it looks.
    fn is_few(&self) -> bool {
        self.waiters.len() < self.look_from
    }

    /// Wakes the waiters that are due to send requests of their own.
    fn wake_due(&mut self, now: Instant) {
        let mut names = self.waiters.due_to_ask(now);
        if self.is_few() {
            let others = self.waiters.due_to_look(now, Duration::ZERO, usize::MAX);
            names.extend(others.into_iter().filter(|name| !self.waiters.looks(name)));
        }
        for name in names {
            self.waiters.wake(&name, Rest::ask);
        }
    }

    /// The time of the next query, or of the next attempt at one while too many are in flight. Names that become due until then
    /// share the query. Of few waiters a request may be late by as much, once, after a time in which they were many.
    fn next_look(&self) -> Option<Instant> {
        let first = self.waiters.first_to_look()?;
        let not_before = if self.looker.in_flight >= MAX_LOOKS {
            self.looker.polls
        } else {
            self.looker.next.filter(|_| !self.is_few())
        };
        Some(not_before.map_or(first, |not_before| first.max(not_before)))
    }

    /// The time at which the task has something to do.
    fn next_due(&self) -> Option<Instant> {
        self.waiters
            .first_to_ask()
            .into_iter()
            .chain(self.next_look())
            .min()
    }

    /// Notes that a query is sent for these names, and returns its number. If its reply is overdue, another one is sent.
    fn begin_look(&mut self, names: &[Arc<str>], now: Instant) -> u64 {
        self.looker.last += 1;
        for name in names {
            let sent = |rest: &mut Rest| rest.look_sent(now, self.looker.last);
            self.waiters.change(name, sent);
        }
        let is_full = names.len() == BATCH;
        let count = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        let gap = LOOK_GAP_PER_NAME.saturating_mul(count).min(LOOK_GAP_MAX);
        self.looker.next = (!is_full).then_some(now + gap);
        self.looker.last
    }
}

async fn run(notifier: Arc<ReleaseNotifier>) {
    loop {
        match notifier.next_step() {
            LookerStep::Look(look) => {
                let looking = look_at(InFlight(Arc::clone(&notifier)), look);
                crate::task::spawn(looking.in_current_span());
            }
            LookerStep::Wait(Some(until)) => drop(timeout_at(until, notifier.look.notified()).await),
            LookerStep::Wait(None) => notifier.look.notified().await,
            LookerStep::End => return,
        }
    }
}

/// Looks at locks. Without a reply it ends after a while, which closes the connection: by then the server has ended the
/// query, and others were sent.
async fn look_at(in_flight: InFlight, look: Look) {
    let notifier = &in_flight.0;
    let store = &notifier.store;
    let query = async {
        let _admission = store.admissions().admit(AdmissionClass::Woken, None).await;
        store
            .look(Looked::Names(&look.names), notifier.takeover_margin, LOOK_LIMIT)
            .await
    };
    // The lines are hints: the locks do not wait long for them.
    let reading = async {
        if !look.lines.is_empty() {
            let (lines, names) = (Arc::clone(&notifier.lines), look.lines.clone());
            let reading = crate::task::spawn(async move { drop(lines.read(&names).await) }.in_current_span());
            let _ = timeout(LINE_LOOK_LIMIT, reading).await;
        }
    };
    let (replied, ()) = tokio::join!(query, reading);
    match replied {
        Ok(running) => notifier.looked(&look, &running),
        // Others were sent.
        Err(error) if driver_error::is_no_reply(&error) => {}
        Err(error) => notifier.look_failed(&look, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PAUSES, subscribe_to, with_wake_up};
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    /// A notifier that looks at the locks of all waiters.
    fn looking() -> Arc<ReleaseNotifier> {
        let notifier = with_wake_up(false);
        notifier.look_from(1);
        notifier
    }

    /// How long the waiter for this lock has waited for the reply to a query, also if none could be sent.
    fn without_reply(notifier: &ReleaseNotifier, name: &str) -> Duration {
        let mut state = lock(&notifier.state);
        let waiter = state.waiters.get(name).unwrap();
        waiter.entry.front().without_reply()
    }

    /// Otherwise each of thousands of waiters would wake the task, and each time it would go over all of them.
    #[tokio::test(start_paused = true)]
    async fn waiters_do_not_wake_the_task_while_no_query_can_be_sent() {
        let notifier = looking();
        lock(&notifier.state).looker.in_flight = MAX_LOOKS;
        let _first = subscribe_to(&notifier, "0");
        let stepped = || lock(&notifier.state).looker.stepped;
        tokio::time::sleep(*PAUSES.end()).await;
        let noted = stepped();
        let attempt = async {
            while stepped() == noted {
                tokio::time::sleep(SHORT).await;
            }
        };
        timeout(LOOK_ALLOWED_POLL * 2, attempt)
            .await
            .expect("the task wakes up by itself");
        tokio::time::sleep(SHORT).await;
        let noted = stepped();
        let others = (1..100).map(|number| subscribe_to(&notifier, &number.to_string()));
        let _others: Vec<_> = others.collect();
        tokio::time::sleep(LOOK_ALLOWED_POLL / 2).await;
        assert_eq!(stepped(), noted);
        tokio::time::sleep(*PAUSES.end()).await;
        assert!(
            ["0", "1", "99"]
                .iter()
                .all(|name| !without_reply(&notifier, name).is_zero())
        );
        assert_eq!(lock(&notifier.state).looker.last, 0);
        drop(InFlight(Arc::clone(&notifier)));
        tokio::time::sleep(SHORT).await;
        assert_eq!(
            lock(&notifier.state).looker.last,
            1,
            "a query is sent when one ends"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_does_not_wait_for_the_next_query() {
        let notifier = looking();
        let waiter = subscribe_to(&notifier, "0");
        let begun = Instant::now();
        {
            let mut state = lock(&notifier.state);
            state.looker.next = Some(begun + LOOK_GAP_MAX);
            let asks = |rest: &mut Rest| rest.yields(begun + SHORT, true);
            state.waiters.change("0", asks);
            notifier.reschedule(&mut state);
        }
        waiter.woken().await;
        assert_eq!(begun.elapsed(), SHORT);
    }
}

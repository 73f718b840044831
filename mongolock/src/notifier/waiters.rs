use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lease::Entry;

/// A part of each pause by which a look may come early: so that one look takes many names.
const EARLY_PART: u32 = 8;

/// The waiters of a provider, at most one for each name: the caller that has its turn. Each waiter either sends requests of its
/// own or rests; one that rests is due at some time.
#[derive(Default)]
pub(super) struct Waiters {
    names: BTreeMap<Arc<str>, Waiter>,
    /// The times at which the waiters that rest are due, with their names.
    due: BTreeSet<(Instant, Arc<str>)>,
}

#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(super) struct Waiter {
    name: Arc<str>,
    /// Wakes the waiter, which then sends a request.
    pub(super) woken: Arc<Notify>,
    /// The waiter's entry in its queue, which keeps what is known of the lock.
    pub(super) entry: Arc<Entry>,
    /// The id of the waiter's own claim: one of its requests may take effect after the server has replied to another one.
    pub(super) claim: Option<Arc<str>>,
    /// Whether the waiter's next request ends its wait when the lock is marked as done.
    pub(super) ends_with_mark: bool,
    /// The pauses while the stream does not report this lock.
    pub(super) backoff: Backoff,
    /// The time at which the waiter registered.
    pub(super) since: Instant,
    /// Given while the waiter rests.
    due: Option<Due>,
    /// The number of the last query that looks at this lock.
    pub(super) look: u64,
    /// Whether it looks before its next request: others stand before it in line, and the stream does not report its lock.
    pub(super) looks: bool,
    /// Whether the last look of such a waiter found the lock free.
    pub(super) saw_free: bool,
    /// Whether the stream has begun to report this lock since the last request or look: a release before is not known.
    pub(super) is_outdated: bool,
}

#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    /// Whether the waiter sends a request then, because its lock was released; otherwise a look is enough.
    asks: bool,
    /// The time before `at` from which a look is useful.
    early: Duration,
}

impl Waiter {
    pub(super) fn new(
        now: Instant,
        woken: &Arc<Notify>,
        entry: &Arc<Entry>,
        backoff: Backoff,
        is_outdated: bool,
    ) -> Self {
        Self {
            name: Arc::clone(entry.name()),
            woken: Arc::clone(woken),
            entry: Arc::clone(entry),
            claim: None,
            ends_with_mark: false,
            backoff,
            since: now,
            due: None,
            look: 0,
            looks: false,
            saw_free: false,
            is_outdated,
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        self.due.is_some()
    }

    /// Whether it leaves a lock that a look has found free to those before it in line: it does so once.
    pub(super) fn leaves_to_others(&mut self, ahead: Option<usize>) -> bool {
        let leaves = self.looks && ahead.is_some_and(|ahead| ahead > 0) && !self.saw_free;
        self.saw_free = leaves;
        leaves && self.is_resting()
    }
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn get(&mut self, name: &str) -> Option<&mut Waiter> {
        self.names.get_mut(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.keys()
    }

    /// The time at which a waiter that rests is due.
    pub(super) fn due_at(&self, name: &str) -> Option<Instant> {
        let due = self.names.get(name)?.due?;
        Some(due.at)
    }

    /// Adds a waiter. There is no other one of its name: a waiter is registered as long as it has the turn at most.
    pub(super) fn add(&mut self, waiter: Waiter) {
        let other = self.names.insert(Arc::clone(&waiter.name), waiter);
        debug_assert!(other.is_none(), "a name has one turn");
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Waiter> {
        self.wake_up(name);
        self.names.remove(name)
    }

    /// Has a waiter rest for this time, or until its lock is free, if that is earlier.
    pub(super) fn rest(
        &mut self,
        now: Instant,
        name: &Arc<str>,
        pause: Duration,
        until_free: Option<Duration>,
    ) -> Duration {
        let (pause, early) = match until_free {
            Some(until_free) if until_free < pause => (until_free, Duration::ZERO),
            _ => (pause, pause / EARLY_PART),
        };
        self.set_due(
            name,
            Due {
                at: now + pause,
                asks: false,
                early,
            },
        );
        pause
    }

    fn set_due(&mut self, name: &Arc<str>, due: Due) {
        self.wake_up(name);
        if let Some(waiter) = self.names.get_mut(name) {
            waiter.due = Some(due);
            self.due.insert((due.at, Arc::clone(name)));
        }
    }

    /// Has a waiter that rests send a request at this time.
    pub(super) fn ask_at(&mut self, name: &Arc<str>, at: Instant) {
        let early = Duration::ZERO;
        self.set_due(
            name,
            Due {
                at,
                asks: true,
                early,
            },
        );
    }

    /// Has the task look at the lock of a waiter that rests at this time.
    pub(super) fn look_at(&mut self, name: &Arc<str>, at: Instant) {
        self.postpone(std::slice::from_ref(name), at);
    }

    /// The names whose waiters are due at this time to send requests.
    pub(super) fn due_to_ask(&self, now: Instant) -> Vec<Arc<str>> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let asks = |name: &&Arc<str>| {
            let due = self.names.get(*name).and_then(|waiter| waiter.due);
            due.is_some_and(|due| due.asks)
        };
        due.map(|(_, name)| name).filter(asks).cloned().collect()
    }

    /// Ends the rest of a waiter.
    pub(super) fn wake_up(&mut self, name: &str) -> Option<&mut Waiter> {
        let waiter = self.names.get_mut(name)?;
        if let Some(due) = waiter.due.take() {
            self.due.remove(&(due.at, Arc::clone(&waiter.name)));
        }
        Some(waiter)
    }

    /// The time at which the first waiter is due.
    pub(super) fn first_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The names that are due at this time, or nearly so, in the order of their times.
    pub(super) fn due(&self, now: Instant, longest_pause: Duration, most: usize) -> Vec<Arc<str>> {
        let latest = now + longest_pause / EARLY_PART;
        let soon = self.due.iter().take_while(|(at, _)| *at <= latest);
        let is_due = |name: &Arc<str>| {
            let due = self.names.get(name).and_then(|waiter| waiter.due);
            due.is_some_and(|due| due.at <= now + due.early && (!due.asks || due.at <= now))
        };
        let names = soon.map(|(_, name)| name).filter(|name| is_due(name));
        names.take(most).cloned().collect()
    }

    /// Whether a waiter is due that looks before its next request.
    pub(super) fn is_look_due(&self, now: Instant) -> bool {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let looks = |name: &Arc<str>| self.names.get(name).is_some_and(|waiter| waiter.looks);
        due.map(|(_, name)| name).any(looks)
    }

    /// Has these waiters rest on until this time.
    pub(super) fn postpone(&mut self, names: &[Arc<str>], at: Instant) {
        for name in names {
            let early = Duration::ZERO;
            self.set_due(
                name,
                Due {
                    at,
                    asks: false,
                    early,
                },
            );
        }
    }

    /// Notes that the stream begins or ends to report these locks. Their waiters are due at once, because a release until
    /// now may not be known.
    pub(super) fn outdate(&mut self, is_concerned: impl Fn(&str) -> bool) {
        let mut resting = Vec::new();
        for (name, waiter) in &mut self.names {
            if is_concerned(name) {
                waiter.is_outdated = true;
                if waiter.is_resting() {
                    resting.push((Arc::clone(name), waiter.since));
                }
            }
        }
        // Those that have waited longest come first.
        for (name, since) in resting {
            self.postpone(&[name], since);
        }
    }

    /// Wakes all waiters.
    pub(super) fn wake_all(&self) {
        self.names.values().for_each(|waiter| waiter.woken.notify_one());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lease::Queues;

    /// So many waiters, whose names are their numbers.
    pub(in crate::notifier) fn waiters(count: usize) -> Waiters {
        let mut waiters = Waiters::default();
        for number in 0..count {
            let name = Arc::from(number.to_string());
            let entry = Queues::new().join(&name);
            let backoff = Backoff::new(Duration::from_millis(10)..=Duration::from_millis(800));
            waiters.add(Waiter::new(
                Instant::now(),
                &Arc::default(),
                &entry,
                backoff,
                false,
            ));
        }
        waiters
    }

    fn name(number: usize) -> Arc<str> {
        number.to_string().into()
    }

    #[test]
    fn waiters_are_due_a_little_early_but_not_before_a_lease_ends() {
        let mut waiters = waiters(3);
        let (pause, longest) = (Duration::from_secs(8), Duration::from_secs(10));
        let mut now = Instant::now();
        let due = |now, waiters: &Waiters| waiters.due(now, longest, usize::MAX);
        assert_eq!(waiters.rest(now, &name(0), pause, None), pause);
        let until_free = waiters.rest(
            now,
            &name(1),
            pause,
            Some(pause * 7 / 8 + Duration::from_millis(900)),
        );
        assert!(until_free < pause);
        assert!(waiters.first_due().is_some() && due(now, &waiters).is_empty());
        now += pause * (EARLY_PART - 1) / EARLY_PART;
        assert_eq!(due(now, &waiters), [name(0)]);
        now += pause / EARLY_PART;
        assert_eq!(due(now, &waiters), [name(1), name(0)]);
        assert_eq!(waiters.due(now, longest, 1), [name(1)]);
    }

    #[test]
    fn waiters_whose_locks_are_reported_from_now_on_are_due_at_once() {
        let (mut waiters, now) = (waiters(3), Instant::now());
        let pause = Duration::from_secs(8);
        waiters.rest(now, &name(0), pause, None);
        waiters.rest(now, &name(1), pause, None);
        waiters.outdate(|name| name != "1");
        assert_eq!(waiters.due(now, Duration::ZERO, usize::MAX), [name(0)]);
        // One that sends a request at this time is due as soon as it rests.
        assert!(waiters.get("2").unwrap().is_outdated && !waiters.get("1").unwrap().is_outdated);
    }

    #[test]
    fn a_waiter_that_is_awake_or_gone_is_not_due() {
        let (mut waiters, now) = (waiters(2), Instant::now());
        for number in 0..2 {
            waiters.rest(now, &name(number), Duration::ZERO, None);
        }
        waiters.wake_up("0");
        assert!(waiters.remove("1").is_some());
        assert!(waiters.first_due().is_none() && waiters.len() == 1);
    }
}

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::rest::{Due, EARLY_PART, Rest};
use crate::lease::Entry;
use crate::permit_id;

/// The waiters of a provider, at most one for each name: the caller that has its turn. Each waiter either sends requests of its
/// own or rests; one that rests is due at some time.
#[derive(Default)]
pub(super) struct Waiters {
    names: BTreeMap<Arc<str>, FrontWaiter>,
    /// Those that rest until they send a request of their own. They stand apart, so that a step which wakes them does not go over
    /// those that look.
    asking: Row,
    /// Those that rest until a query looks at their locks.
    looking: Row,
}

/// Waiters that rest, in the order of the times at which they are due. The value is how long before its time a look at the lock
/// is already useful.
type Row = BTreeMap<(Instant, Arc<str>), Duration>;

pub(super) struct FrontWaiter {
    name: Arc<str>,
    /// Wakes the waiter, which then sends a request.
    pub(super) woken: Arc<Notify>,
    /// The waiter's entry in its queue, which keeps what is known of the lock.
    pub(super) entry: Arc<Entry>,
    /// The id of the waiter's own claim: one of its requests may take effect after the server has replied to another one.
    pub(super) claim: Option<Arc<str>>,
    /// Whether the waiter's next request ends its wait when the lock is marked as done.
    pub(super) ends_with_mark: bool,
    /// It is changed by [`Waiters::change`], which keeps the order of the times.
    rest: Rest,
}

impl FrontWaiter {
    pub(super) fn new(woken: &Arc<Notify>, entry: &Arc<Entry>, rest: Rest) -> Self {
        Self {
            name: Arc::clone(entry.name()),
            woken: Arc::clone(woken),
            entry: Arc::clone(entry),
            claim: None,
            ends_with_mark: false,
            rest,
        }
    }

    pub(super) fn rest(&self) -> &Rest {
        &self.rest
    }

    /// When the waiter is due, if it rests. A waiter for any permit of a semaphore asks unless it looks: no document has its
    /// name, so a query can read only its line.
    fn due(&self) -> Option<Due> {
        let due = self.rest.due()?;
        let asks = due.asks || (permit_id::is_group(&self.name) && !self.rest.looks());
        Some(Due { asks, ..due })
    }
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn get(&mut self, name: &str) -> Option<&mut FrontWaiter> {
        self.names.get_mut(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.keys()
    }

    /// When a waiter that rests is due.
    pub(super) fn due_of(&self, name: &str) -> Option<Due> {
        self.names.get(name)?.rest.due()
    }

    /// Adds a waiter. There is no other one of its name: a waiter is registered as long as it has the turn at most.
    pub(super) fn add(&mut self, waiter: FrontWaiter) {
        let other = self.names.insert(Arc::clone(&waiter.name), waiter);
        debug_assert!(other.is_none(), "a name has one turn");
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<FrontWaiter> {
        self.change(name, Rest::finish);
        self.names.remove(name)
    }

    /// Changes the rest of a waiter, if there is one of this name.
    pub(super) fn change<T>(&mut self, name: &str, change: impl FnOnce(&mut Rest) -> T) -> Option<T> {
        let waiter = self.names.get_mut(name)?;
        let before = waiter.due();
        let output = change(&mut waiter.rest);
        let (after, name) = (waiter.due(), Arc::clone(&waiter.name));
        if before != after {
            if let Some(due) = before {
                self.row(due).remove(&(due.at, Arc::clone(&name)));
            }
            if let Some(due) = after {
                self.row(due).insert((due.at, name), due.early);
            }
        }
        Some(output)
    }

    /// The row for waiters with such a due time.
    fn row(&mut self, due: Due) -> &mut Row {
        if due.asks {
            &mut self.asking
        } else {
            &mut self.looking
        }
    }

    /// Ends the rest of a waiter and wakes it.
    pub(super) fn wake(&mut self, name: &str, end: impl FnOnce(&mut Rest)) {
        self.change(name, end);
        if let Some(waiter) = self.names.get(name) {
            waiter.woken.notify_one();
        }
    }

    /// The names whose waiters are due at this time to send requests.
    pub(super) fn due_to_ask(&self, now: Instant) -> Vec<Arc<str>> {
        let due = self.asking.keys().take_while(|(at, _)| *at <= now);
        due.map(|(_, name)| Arc::clone(name)).collect()
    }

    /// The names to look at that are due at this time, or nearly so, in the order of their times.
    pub(super) fn due_to_look(&self, now: Instant, longest_pause: Duration, most: usize) -> Vec<Arc<str>> {
        let latest = now + longest_pause / EARLY_PART;
        let soon = self.looking.iter().take_while(|((at, _), _)| *at <= latest);
        let due = soon.filter(|((at, _), early)| *at <= now + **early);
        due.map(|((_, name), _)| Arc::clone(name)).take(most).collect()
    }

    /// The time at which the first waiter is due to send a request.
    pub(super) fn first_to_ask(&self) -> Option<Instant> {
        self.asking.first_key_value().map(|((at, _), _)| *at)
    }

    /// The time at which the first name to look at is due.
    pub(super) fn first_to_look(&self) -> Option<Instant> {
        self.looking.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether a query looks at this lock before its waiter's next request.
    pub(super) fn looks(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|waiter| waiter.rest.looks())
    }

    /// Notes that the stream begins or ends to report these locks. Their waiters are due at once, because a release until
    /// now may not be known.
    pub(super) fn outdate(&mut self, is_concerned: impl Fn(&str) -> bool) {
        let concerned = self.names.keys().filter(|name| is_concerned(name));
        for name in concerned.cloned().collect::<Vec<_>>() {
            self.change(&name, Rest::outdated);
        }
    }

    /// Wakes all waiters.
    pub(super) fn wake_all(&self) {
        self.names.values().for_each(|waiter| waiter.woken.notify_one());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::rest::Outlook;
    use super::*;
    use crate::backoff::Backoff;
    use crate::lease::Queues;
    use crate::moment::Moment;

    const PAUSE: Duration = Duration::from_secs(8);

    /// So many waiters, whose names are their numbers. Each of their pauses is [`PAUSE`].
    pub(in crate::notifier) fn waiters(count: usize) -> Waiters {
        let mut waiters = Waiters::default();
        for number in 0..count {
            let name = Arc::from(number.to_string());
            let entry = Queues::new().join(&name);
            let rest = Rest::new(Instant::now(), Backoff::new(PAUSE..=PAUSE), false);
            waiters.add(FrontWaiter::new(&Arc::default(), &entry, rest));
        }
        waiters
    }

    fn name(number: usize) -> Arc<str> {
        number.to_string().into()
    }

    /// Has a waiter rest whose lock is held, for this time if that is known.
    fn rest(waiters: &mut Waiters, now: Instant, number: usize, remaining: Option<Duration>) {
        let outlook = Outlook {
            is_reported: false,
            is_too_costly: false,
            standing: None,
        };
        let held = |rest: &mut Rest| rest.held(Moment::at(now), &outlook, remaining);
        assert!(waiters.change(&name(number), held).is_some());
    }

    #[test]
    fn waiters_are_due_a_little_early_but_not_before_a_lease_ends() {
        let (mut waiters, mut now) = (waiters(3), Instant::now());
        let longest = Duration::from_secs(10);
        let due = |now, waiters: &Waiters| waiters.due_to_look(now, longest, usize::MAX);
        rest(&mut waiters, now, 0, None);
        let until_free = PAUSE * 7 / 8 + Duration::from_millis(900);
        rest(&mut waiters, now, 1, Some(until_free));
        assert!(waiters.first_to_look().is_some() && due(now, &waiters).is_empty());
        now += PAUSE * (EARLY_PART - 1) / EARLY_PART;
        assert_eq!(due(now, &waiters), [name(0)]);
        now += PAUSE / EARLY_PART;
        assert_eq!(due(now, &waiters), [name(1), name(0)]);
        assert_eq!(waiters.due_to_look(now, longest, 1), [name(1)]);
    }

    #[test]
    fn waiters_whose_locks_are_reported_from_now_on_are_due_at_once() {
        let (mut waiters, now) = (waiters(3), Instant::now());
        rest(&mut waiters, now, 0, None);
        rest(&mut waiters, now, 1, None);
        waiters.outdate(|name| name != "1");
        assert_eq!(waiters.due_to_look(now, Duration::ZERO, usize::MAX), [name(0)]);
        // One that sends a request at this time is due as soon as it rests.
        rest(&mut waiters, now, 2, None);
        assert_eq!(
            waiters.due_to_look(now, Duration::ZERO, usize::MAX),
            [name(0), name(2)]
        );
    }

    /// It looks only at the line, and only while others stand before it and no stream reports the permits.
    #[test]
    fn a_waiter_for_any_permit_asks_unless_it_looks() {
        let (mut waiters, now) = (Waiters::default(), Instant::now());
        let name = permit_id::group("gpu");
        let entry = Queues::new().join(&name);
        let rest = Rest::new(now, Backoff::new(PAUSE..=PAUSE), false);
        waiters.add(FrontWaiter::new(&Arc::default(), &entry, rest));
        for looks in [false, true, false] {
            waiters.change(&name, |rest| rest.yields(now, !looks));
            let outlook = Outlook {
                is_reported: !looks,
                is_too_costly: false,
                standing: None,
            };
            if !looks {
                waiters.change(&name, |rest| {
                    rest.held(Moment::at(now), &outlook, Some(Duration::ZERO))
                });
            }
            let later = now + PAUSE;
            let expected = std::slice::from_ref(&name);
            let (asking, looking) = if looks {
                (&[][..], expected)
            } else {
                (expected, &[][..])
            };
            assert_eq!(waiters.due_to_ask(later), asking);
            assert_eq!(waiters.due_to_look(later, PAUSE, 2), looking);
        }
    }

    #[test]
    fn a_waiter_that_is_awake_or_gone_is_not_due() {
        let (mut waiters, now) = (waiters(2), Instant::now());
        for number in 0..2 {
            rest(&mut waiters, now, number, Some(Duration::ZERO));
        }
        assert!(waiters.first_to_look().is_some());
        waiters.wake("0", Rest::finish);
        assert!(waiters.remove("1").is_some());
        assert!(waiters.first_to_look().is_none() && waiters.len() == 1);
    }
}

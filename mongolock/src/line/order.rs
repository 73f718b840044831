use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use crate::store::Waiter;
use crate::timing::{
    LINE_MARGIN, LINE_REMEMBER, LINE_REMEMBER_WITHOUT_LINE, LINE_SLOTS_MAX, YIELD_MAX, YIELD_MAX_POLLING,
};

/// The number of acquisitions that the first in line may let pass before it is not counted any more: its process may have
/// ended. It is counted again when its document has changed.
const PASSES: u32 = 6;

/// The same number when others are not counted already: it is halved for each of them, down to this.
const PASSES_LEAST: u32 = 2;

/// The number of providers that have acquired the lock since this one did from which on those that have left are forgotten.
const ACQUIRED_MOST: usize = 256;

/// What a provider knows of the line of one name: the waiters of other providers in their order.
///
/// It is a hint. It decides when this provider sends an acquire request, and the lock document alone decides who has the
/// lock: wrong knowledge costs order or some time, and nothing else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    others: Vec<Other>,
    /// The time of the last acquisition by another provider.
    acquired_by_other: Option<Instant>,
    /// The last time at which a program without a place in line acquired the lock.
    acquired_without_line: Option<Instant>,
    /// The providers that have acquired the lock since this one did: they stand behind it, also where a line that was read
    /// does not have their new places yet.
    acquired_since: Vec<Arc<str>>,
}

/// The waiter of another provider, by its document.
#[derive(Debug, Clone)]
struct Other {
    provider: Arc<str>,
    /// When it took this place: after a move it is another time.
    at: DateTime,
    /// The time that it needs from a release to its acquire request.
    time_slot: Duration,
    /// Whether it stands before this provider's own document, or this provider has none.
    is_ahead: bool,
    /// The number of acquisitions that it has let pass while it was the first.
    passes: u32,
}

impl Other {
    fn is_counted(&self) -> bool {
        self.passes < PASSES
    }

    /// Whether this is the same document as before. A provider that has written it since is alive.
    fn is_unchanged(&self, waiter: &Waiter) -> bool {
        self.provider == waiter.provider && self.at == waiter.at && self.time_slot == waiter.time_slot
    }
}

impl Order {
    /// Takes over the line as a query has returned it; `own` is the mark of this provider.
    pub(crate) fn read(&mut self, line: &[Waiter], own: &str) {
        let place = line.iter().position(|waiter| &*waiter.provider == own);
        let before = std::mem::take(&mut self.others);
        let passes = |waiter: &Waiter| {
            before
                .iter()
                .find(|other| other.is_unchanged(waiter))
                .map_or(0, |other| other.passes)
        };
        let acquired_since = &self.acquired_since;
        let is_behind = |waiter: &Waiter| acquired_since.contains(&waiter.provider);
        let others = line.iter().enumerate().filter(|(index, _)| Some(*index) != place);
        let others = others.map(|(index, waiter)| Other {
            provider: Arc::clone(&waiter.provider),
            at: waiter.at,
            time_slot: waiter.time_slot,
            is_ahead: place.is_none_or(|place| index < place) && !is_behind(waiter),
            passes: passes(waiter),
        });
        self.others = others.collect();
        self.stop_counting();
    }

    /// Notes that this provider has acquired the lock, and goes to the end of the line.
    pub(crate) fn acquired(&mut self) {
        self.acquired_since.clear();
    }

    /// Notes that another provider has acquired the lock; `None` if the holder is not one of ours. It goes to the end of
    /// the line. If it was not one of the first ones, as many as `width` says, the first one has let an acquisition pass.
    pub(crate) fn acquired_by(&mut self, now: Instant, provider: Option<&str>, width: usize) {
        self.acquired_by_other = Some(now);
        if provider.is_none() {
            self.acquired_without_line = Some(now);
        }
        if let Some(provider) = provider.filter(|provider| !self.has_acquired_since(provider)) {
            self.acquired_since.push(Arc::from(provider));
            self.forget_some_acquisitions();
        }
        let is_ahead = |other: &Other| other.is_ahead && other.is_counted();
        let mut first_ones = self.others.iter().filter(|other| is_ahead(other)).take(width);
        let is_one_of_them = first_ones.any(|first| Some(&*first.provider) == provider);
        let mut ahead = self.others.iter_mut().filter(|other| is_ahead(other));
        let passed = ahead.next().filter(|_| !is_one_of_them);
        let is_passed = passed.is_some();
        if let Some(first) = passed {
            first.passes += 1;
        }
        if let Some(provider) = provider {
            self.moved_to_end(provider);
        }
        if is_passed {
            self.stop_counting();
        }
    }

    /// Notes that a provider has another place than the known one. So it is alive, also if it had let acquisitions pass before.
    fn moved_to_end(&mut self, provider: &str) {
        for other in self
            .others
            .iter_mut()
            .filter(|other| &*other.provider == provider)
        {
            other.is_ahead = false;
            other.passes = 0;
        }
    }

    /// Forgets those that have acquired the lock and stand in the line no more, if there are many: processes that live for a
    /// short time each have a mark of their own.
    fn forget_some_acquisitions(&mut self) {
        if self.acquired_since.len() > ACQUIRED_MOST {
            let others = &self.others;
            self.acquired_since
                .retain(|provider| others.iter().any(|other| other.provider == *provider));
        }
    }

    fn has_acquired_since(&self, provider: &str) -> bool {
        self.acquired_since.iter().any(|other| &**other == provider)
    }

    /// Stops to count those that have let too many acquisitions pass.
    fn stop_counting(&mut self) {
        let gone = self.others.iter().filter(|other| !other.is_counted()).count();
        let most = PASSES
            .checked_shr(u32::try_from(gone).unwrap_or(u32::MAX))
            .unwrap_or(0);
        let most = most.max(PASSES_LEAST);
        for other in self.others.iter_mut().filter(|other| other.passes >= most) {
            other.passes = other.passes.max(PASSES);
        }
    }

    /// The number of waiters that stand before this provider.
    pub(crate) fn ahead(&self) -> usize {
        self.others
            .iter()
            .filter(|other| other.is_ahead && other.is_counted())
            .count()
    }

    /// How long this provider leaves a free lock to those before it.
    pub(crate) fn time_slots_ahead(&self) -> Duration {
        let ahead = self
            .others
            .iter()
            .filter(|other| other.is_ahead && other.is_counted());
        let time_slots = ahead.fold(Duration::ZERO, |sum, other| sum.saturating_add(other.time_slot));
        time_slots.min(LINE_SLOTS_MAX)
    }

    /// Whether other providers want the lock: they stand in line, or one of them has acquired it recently. Those that
    /// cannot stand in line are known only by the latter.
    pub(crate) fn others_wait(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now - at < LINE_REMEMBER;
        self.others.iter().any(Other::is_counted) || self.acquired_by_other.is_some_and(is_recent)
    }

    /// Whether a program without a place in line wants the lock, as far as is known.
    pub(crate) fn was_acquired_without_line(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now - at < LINE_REMEMBER_WITHOUT_LINE;
        self.acquired_without_line.is_some_and(is_recent)
    }

    /// The longest time for which this provider waits after its own release until another one has acquired the lock.
    pub(crate) fn yield_time(&self, has_stream: bool) -> Duration {
        let first = self.others.iter().find(|other| other.is_counted());
        let its_time_slot = first.map(|first| first.time_slot.min(LINE_SLOTS_MAX) + LINE_MARGIN);
        let usual = if has_stream { YIELD_MAX } else { YIELD_MAX_POLLING };
        its_time_slot.unwrap_or_default().max(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_SLOT: Duration = Duration::from_millis(6);

    /// The documents of these providers, in this order.
    fn line(providers: &[&str]) -> Vec<Waiter> {
        let waiter = |(index, provider): (usize, &&str)| Waiter {
            provider: Arc::from(*provider),
            owner: String::new(),
            at: DateTime::from_millis(i64::try_from(index).unwrap()),
            since: None,
            time_slot: TIME_SLOT,
        };
        providers.iter().enumerate().map(waiter).collect()
    }

    fn order(providers: &[&str]) -> Order {
        let mut order = Order::default();
        order.read(&line(providers), "own");
        order
    }

    #[test]
    fn only_those_before_its_own_document_are_left_their_time_slots() {
        assert_eq!(order(&["own", "a", "b"]).time_slots_ahead(), Duration::ZERO);
        assert_eq!(order(&["a", "own", "b"]).time_slots_ahead(), TIME_SLOT);
        assert_eq!(
            order(&["a", "b"]).time_slots_ahead(),
            TIME_SLOT * 2,
            "it is not in line"
        );
        let many: Vec<&str> = std::iter::repeat_n("a", 100).collect();
        assert_eq!(order(&many).time_slots_ahead(), LINE_SLOTS_MAX);
    }

    #[test]
    fn a_provider_that_acquires_is_not_ahead_any_more_but_still_wants_the_lock() {
        let now = Instant::now();
        let mut order = order(&["a", "b", "own"]);
        order.acquired_by(now, Some("a"), 1);
        assert_eq!(order.ahead(), 1);
        order.acquired_by(now, Some("b"), 1);
        assert_eq!(order.ahead(), 0);
        assert!(order.others_wait(now));
    }

    #[test]
    fn the_first_that_lets_acquisitions_pass_is_not_counted_until_it_moves() {
        let now = Instant::now();
        let mut order = order(&["expired", "expired too", "own"]);
        for number in 0..PASSES {
            assert_eq!(order.ahead(), 2, "after {number} acquisitions");
            order.acquired_by(now, Some("other"), 1);
        }
        assert_eq!(order.ahead(), 1);
        for number in 0..PASSES / 2 {
            assert_eq!(order.ahead(), 1, "after {number} more acquisitions");
            order.acquired_by(now, None, 1);
        }
        assert_eq!(order.ahead(), 0);
        order.read(&line(&["expired", "expired too", "own"]), "own");
        assert_eq!(order.ahead(), 0, "they have not moved");
        order.read(&line(&["x", "own", "y", "expired"])[1..], "own");
        assert_eq!(order.ahead(), 0);
        order.read(&line(&["x", "expired", "own"])[1..], "own");
        assert_eq!(order.ahead(), 1, "it has moved");
    }

    /// For three permits the first three in line ask at once, and only an acquisition from behind them passes the first.
    #[test]
    fn for_several_permits_several_stand_first() {
        let now = Instant::now();
        for (provider, passes) in [("first", 0), ("third", 0), ("fourth", 1), ("without line", 1)] {
            let mut order = order(&["first", "second", "third", "fourth", "own"]);
            order.acquired_by(now, Some(provider), 3);
            assert_eq!(order.others[0].passes, passes, "{provider}");
            let left = if provider == "without line" { 4 } else { 3 };
            assert_eq!(order.ahead(), left, "{provider}");
        }
    }

    /// A process that was too slow for several acquisitions, and then acquires the lock, wants it again.
    #[test]
    fn a_provider_that_acquires_the_lock_is_counted_again() {
        let mut now = Instant::now();
        let mut order = order(&["slow", "own"]);
        for _ in 0..PASSES {
            order.acquired_by(now, Some("other"), 1);
        }
        now += LINE_REMEMBER;
        assert!(!order.others_wait(now), "it seems to have expired");
        order.acquired_by(now, Some("slow"), 1);
        now += LINE_REMEMBER;
        assert!(order.others_wait(now));
        assert_eq!(order.ahead(), 0, "it has gone to the end");
    }

    #[test]
    fn many_short_lived_providers_are_not_remembered() {
        let now = Instant::now();
        let mut order = order(&["a", "own"]);
        order.acquired_by(now, Some("a"), 1);
        for number in 0..10_000 {
            order.acquired_by(now, Some(&number.to_string()), 1);
        }
        assert!(order.acquired_since.len() <= ACQUIRED_MOST + 1);
        assert!(order.has_acquired_since("a"), "it stands in line");
    }

    #[test]
    fn a_waiter_that_asks_for_a_longer_time_slot_is_counted_again() {
        let now = Instant::now();
        let mut order = order(&["slow", "own"]);
        for _ in 0..PASSES {
            order.acquired_by(now, Some("other"), 1);
        }
        let mut later = line(&["slow", "own"]);
        order.read(&later, "own");
        assert_eq!(order.ahead(), 0, "its document is the same");
        later[0].time_slot += LINE_MARGIN;
        order.read(&later, "own");
        assert_eq!(order.ahead(), 1);
    }

    #[test]
    fn a_releaser_yields_to_those_in_line_and_to_recent_claims_without_line() {
        let mut now = Instant::now();
        let mut alone = order(&["own"]);
        assert!(!alone.others_wait(now));
        alone.acquired_by(now, None, 1);
        assert!(alone.others_wait(now));
        now += LINE_REMEMBER;
        assert!(!alone.others_wait(now));
        assert!(order(&["own", "a"]).others_wait(now));
        assert_eq!(alone.yield_time(true), YIELD_MAX);
        assert_eq!(alone.yield_time(false), YIELD_MAX_POLLING);
    }
}

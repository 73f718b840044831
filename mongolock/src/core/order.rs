//! The order between processes, learned from the change stream: the process that acquired least recently goes first.
//! The order is a hint: it delays a process at a free lock by a few time slots at most.

use super::limits;
use super::time::{MS, Span, Time};

/// The mark of a provider; `None` for all other programs together.
pub(super) type Mark = Option<[u8; 6]>;

/// The order of the providers that acquire one lock, as far as this process knows it.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Order {
    /// What is known of other providers. It is on the heap, because most locks have one provider.
    others: Option<Box<Others>>,
    /// Whether this process has a place among them: it has had its first turn.
    has_place: bool,
    alone_since: Time,
    released_at: Time,
    /// Whether this process has released the lock and now yields to others.
    pub(super) yields: bool,
}

/// The other providers that acquire a lock.
#[derive(Debug, Clone, Default, Hash)]
struct Others {
    /// The providers that have acquired the lock, the least recent first. Those from index `active` on have left too
    /// many time slots unused.
    rivals: Vec<Rival>,
    active: usize,
    /// The number of active rivals that go before this process, if it has a place.
    ahead: usize,
    /// A process without a place in the order spreads its requests over this time, because others were faster.
    window: Span,
    /// The rivals that have acquired the lock since this process began to wait, and how often any of them did so
    /// repeatedly.
    overtaken_by: Vec<Mark>,
    overtaken: u32,
    rival_seen: Time,
}

/// Another provider that acquires the lock.
#[derive(Debug, Clone, Copy, Hash)]
struct Rival {
    mark: Mark,
    slot: Span,
    /// The number of time slots in a row that the rival has not used.
    passes: u8,
}

impl Order {
    /// Another process has acquired the lock. `slot` is the time slot that it needs; `waits` says whether calls wait in
    /// this process.
    pub(super) fn acquired_by(&mut self, now: Time, (mark, slot): (Mark, Span), waits: bool) {
        let others = self.others.get_or_insert_default();
        let is_of_mark = |rival: &Rival| rival.mark == mark;
        let place = others.rivals.iter().position(is_of_mark);
        if others.ahead > 0 && place != Some(0) {
            others.let_pass(0);
        }
        // Another process was faster: a process without a place in the order spreads its next requests over a longer
        // time, or over a shorter one if the same process was faster again.
        if waits && others.overtaken_by.contains(&mark) {
            others.window = if others.window > MS { others.window / 2 } else { 0 };
            others.overtaken += 1;
        } else if waits {
            others.window = (others.window * 2).clamp(3 * MS / 2, limits::SLOTS_MOST);
            others.overtaken_by.push(mark);
        }
        if let Some(place) = others.rivals.iter().position(is_of_mark) {
            others.remove(place);
        }
        let passes = 0;
        // Usually there are few.
        others.rivals.reserve_exact(1);
        others.rivals.insert(others.active, Rival { mark, slot, passes });
        others.active += 1;
        // More that do not count make no difference.
        others
            .rivals
            .truncate(others.active + usize::from(limits::PASSES));
        others.rival_seen = now;
        (self.alone_since, self.yields) = (now, false);
    }

    /// This process has acquired the lock.
    pub(super) fn acquired(&mut self, now: Time) {
        if let Some(others) = &mut self.others {
            for place in (0..others.ahead).rev() {
                others.let_pass(place);
            }
            (others.ahead, others.window, others.overtaken) = (others.active, 0, 0);
            others.overtaken_by.clear();
        }
        (self.has_place, self.yields) = (true, false);
        if now - self.released_at > 100 * MS {
            self.alone_since = now;
        }
    }

    /// This process has released the lock. Returns the time from which it may ask again.
    pub(super) fn released(&mut self, now: Time, luck: f64) -> Time {
        self.released_at = now;
        let pause = if self.has_rivals(now) {
            self.yields = true;
            match self.active() {
                0 => limits::YIELD_UNKNOWN,
                active => (self.slots(active) + limits::SLOT).max(limits::YIELD_LEAST),
            }
        } else if now - self.alone_since > limits::TURN_ALONE {
            (self.yields, self.alone_since) = (true, now);
            part_of(limits::ALONE_PAUSE, luck)
        } else {
            0
        };
        now + pause
    }

    /// This process no longer yields to others.
    pub(super) fn ends_yielding(&mut self, now: Time) {
        if std::mem::take(&mut self.yields)
            && now - self.released_at > 8 * MS
            && let Some(others) = &mut self.others
        {
            for place in (0..others.active).rev() {
                others.let_pass(place);
            }
        }
    }

    /// The number of rivals that use their time slots.
    pub(super) fn active(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.active)
    }

    pub(super) fn has_rivals(&self, now: Time) -> bool {
        let is_recent = |others: &Others| others.active > 0 || now - others.rival_seen < limits::REMEMBER;
        self.others.as_deref().is_some_and(is_recent)
    }

    /// The time for which this process waits for the slots of those before it, if this number of permits is free (1 for
    /// a lock).
    pub(super) fn time_slot(&self, luck: f64, free: usize) -> Span {
        match &self.others {
            None => 0,
            // If several permits are free, the same number of processes need not wait for each other.
            Some(others) if self.has_place => self.slots((others.ahead + 1).saturating_sub(free)),
            Some(others) => part_of((0, others.window), luck) / Span::try_from(free).unwrap_or(1).max(1),
        }
    }

    /// Whether this process is too far away to use events in time, after it has waited for this time.
    pub(super) fn is_far(&self, waited: Span) -> bool {
        let overtaken = self.others.as_ref().map_or(0, |others| others.overtaken);
        overtaken >= limits::OVERTAKEN && waited > limits::LATE_AFTER
    }

    fn slots(&self, number: usize) -> Span {
        let rivals = self.others.iter().flat_map(|others| &others.rivals[..number]);
        rivals
            .map(|rival| rival.slot)
            .sum::<Span>()
            .min(limits::SLOTS_MOST)
    }
}

impl Others {
    /// This rival has not used its time slot. After several unused slots in a row it no longer counts, until it
    /// acquires the lock again.
    fn let_pass(&mut self, place: usize) {
        let gone = (self.rivals.len() - self.active).min(2);
        let most = usize::from(limits::PASSES) / (1 + gone);
        let rival = &mut self.rivals[place];
        rival.passes += 1;
        if usize::from(rival.passes) >= most {
            let rival = self.remove(place);
            self.rivals.push(rival);
        }
    }

    fn remove(&mut self, place: usize) -> Rival {
        self.active -= usize::from(place < self.active);
        self.ahead -= usize::from(place < self.ahead);
        self.rivals.remove(place)
    }
}

/// A random time between these bounds. `luck` is from 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a part of a short time"
)]
pub(super) fn part_of((least, most): (Span, Span), luck: f64) -> Span {
    least + ((most - least) as f64 * luck) as Span
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Time {
        Time(ms * MS)
    }

    /// A process whose slot has its number of milliseconds.
    fn rival(slot: u8) -> (Mark, Span) {
        (Some([slot; 6]), Span::from(slot) * MS)
    }

    /// These processes acquire the lock one after the other, when this one waits or does not.
    fn acquired_by(order: &mut Order, slots: &[u8], waits: bool) {
        for slot in slots {
            order.acquired_by(at(0), rival(*slot), waits);
        }
    }

    /// The slot in microseconds, if this number of permits is free.
    fn slot(order: &Order, free: usize) -> Span {
        order.time_slot(1.0, free)
    }

    #[test]
    fn the_process_that_acquired_least_recently_goes_first() {
        let mut order = Order::default();
        assert_eq!((order.active(), slot(&order, 1)), (0, 0));
        acquired_by(&mut order, &[1, 2, 3], false);
        order.acquired(at(0));
        assert_eq!(
            [1, 2, 3, 4].map(|free| slot(&order, free)),
            [6_000, 3_000, 1_000, 0]
        );
        acquired_by(&mut order, &[1], false);
        assert_eq!(slot(&order, 1), 5_000, "it goes after this one now");
        acquired_by(&mut order, &[2], false);
        assert_eq!(slot(&order, 1), 3_000);
        acquired_by(&mut order, &[45, 3], false);
        order.acquired(at(0));
        assert_eq!(slot(&order, 1), 50_000, "the longest time");
    }

    #[test]
    fn a_process_that_leaves_its_slots_unused_no_longer_counts() {
        let mut order = Order::default();
        acquired_by(&mut order, &[1, 2, 3], false);
        order.acquired(at(0));
        // The first of them uses its own slot, and then only slots of others.
        acquired_by(&mut order, &[1; 6], false);
        assert_eq!((order.active(), slot(&order, 1)), (3, 5_000));
        acquired_by(&mut order, &[1], false);
        assert_eq!((order.active(), slot(&order, 1)), (2, 3_000), "after six slots");
        acquired_by(&mut order, &[1; 2], false);
        assert_eq!(order.active(), 2);
        acquired_by(&mut order, &[1], false);
        assert_eq!(
            order.active(),
            1,
            "three slots suffice when another one does not count"
        );
        acquired_by(&mut order, &[2], false);
        assert_eq!(order.active(), 2, "it counts again");
        // This process acquires the lock before both of them.
        order.acquired(at(0));
        (0..2).for_each(|_| order.acquired(at(0)));
        assert_eq!(order.active(), 2);
        order.acquired(at(0));
        assert_eq!(order.active(), 0);
    }

    #[test]
    fn a_process_without_a_place_spreads_its_requests_more_widely_the_more_others_are_faster() {
        let mut order = Order::default();
        acquired_by(&mut order, &[1, 2, 3], true);
        assert_eq!([1, 2].map(|free| slot(&order, free)), [6_000, 3_000]);
        acquired_by(&mut order, &[1; 3], true);
        assert_eq!(slot(&order, 1), 750, "the same process was faster again");
        acquired_by(&mut order, &[1], true);
        assert_eq!(slot(&order, 1), 0);
        acquired_by(&mut order, &[2, 2, 2, 2, 2], true);
        assert!(!order.is_far(101 * MS), "nine times");
        acquired_by(&mut order, &[2], true);
        assert!(order.is_far(101 * MS) && !order.is_far(100 * MS));
        order.acquired(at(0));
        assert!(!order.is_far(101 * MS));
    }

    #[test]
    fn a_process_yields_after_each_turn_to_its_rivals() {
        let mut order = Order::default();
        acquired_by(&mut order, &[1], false);
        assert_eq!(order.released(at(0), 0.0), at(15), "the shortest time");
        acquired_by(&mut order, &[20, 25], false);
        assert!(!order.yields);
        assert_eq!(order.released(at(0), 0.0), at(51), "their slots and its own");
        assert!(order.yields);
        order.ends_yielding(at(9));
        for _ in 0..8 {
            // They had no time.
            order.released(at(0), 0.0);
            order.ends_yielding(at(8));
        }
        for _ in 0..4 {
            order.released(at(0), 0.0);
            order.ends_yielding(at(9));
        }
        assert!(order.active() == 3 && !order.yields);
        order.released(at(0), 0.0);
        order.ends_yielding(at(9));
        assert_eq!(order.active(), 0, "none of them has used six slots");
        assert_eq!(order.released(at(499), 0.0), at(529), "others were there");
    }

    #[test]
    fn a_process_that_was_alone_for_long_yields_once() {
        let mut order = Order::default();
        order.acquired(at(0));
        assert_eq!(order.released(at(160), 0.5), at(160));
        assert!(!order.yields);
        assert_eq!(order.released(at(161), 0.5), at(165));
        assert!(order.yields);
        assert_eq!(order.released(at(321), 0.5), at(321), "it was alone since then");
        order.acquired(at(421));
        assert!(!order.yields);
        assert_eq!(order.released(at(422), 0.0), at(425));
        order.acquired(at(523));
        assert_eq!(order.released(at(683), 0.0), at(683), "it had not used the lock");
        acquired_by(&mut order, &[1], false);
        for _ in 0..7 {
            order.acquired(at(0));
        }
        assert!(order.has_rivals(at(499)) && !order.has_rivals(at(500)));
    }
}

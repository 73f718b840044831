use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use super::order::Order;
use super::{OwnAcquisition, Standing, User};
use crate::lock_id;
use crate::queue::Rivals;
use crate::store::{ProviderMark, Waiter};
use crate::timing::{LINE_LINGER, LINE_POLL, LINE_POLL_PART, LINE_SHOWN, LINE_SLOT_WITHOUT_LINE};

/// The line of one name, in which this provider stands.
#[derive(Debug, Clone)]
pub(super) struct Line {
    order: Order,
    /// What uses the name in this process; the provider leaves the line soon after the last user.
    user: User,
    /// How many waiters ask at once.
    width: usize,
    /// Whether the change stream tells this provider of releases; it polls otherwise.
    has_stream: bool,
    /// What the document has to become; `None` if it is as it should be.
    wanted: Option<Write>,
    /// The time since which a caller waits by the document, if it says so.
    shown_wait: Option<Instant>,
    /// The greatest place that was seen in this line.
    last_place: Option<DateTime>,
    /// Given after a release while others wait: until then the next caller leaves the lock to them.
    yields_until: Option<Instant>,
    /// Whether no other provider is known to have acquired the lock after this one.
    was_last: bool,
    /// The last claim of another provider that is known to have had the lock, and since when it is known.
    holder: Option<OtherClaim>,
    /// The time since which the name may be without a user.
    idle_since: Option<Instant>,
}

/// The claim of another provider that has the lock.
#[derive(Debug, Clone)]
struct OtherClaim {
    lock_id: Arc<str>,
    since: Instant,
}

/// A write of the document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Write {
    Place(PlaceRequest),
    Leave,
}

/// A place that the provider takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceRequest {
    /// The time at which the oldest waiting caller began to wait.
    pub(super) waiting: Option<Instant>,
    /// The greatest place that was seen in this line.
    pub(super) last: Option<DateTime>,
    /// Whether it is the place that the provider has; it enters the line, or moves to its end, otherwise.
    pub(super) is_kept: bool,
}

impl Line {
    pub(super) fn new(user: User, has_stream: bool) -> Self {
        Self {
            order: Order::default(),
            user,
            width: 1,
            has_stream,
            wanted: None,
            shown_wait: None,
            last_place: None,
            yields_until: None,
            was_last: true,
            holder: None,
            idle_since: None,
        }
    }

    pub(super) fn has_stream(&self) -> bool {
        self.has_stream
    }

    pub(super) fn want_move(&mut self, waiting: Option<Instant>) {
        self.want_place(waiting, false);
    }

    /// Notes that a caller waits since this time. The document says so after a while, for whoever
    /// reads the collection by hand: most waits of a provider that stands in line are short. Returns whether the document is to be written.
    pub(super) fn note_wait(&mut self, now: Instant, since: Instant) -> bool {
        // The caller whose wait is shown may have left.
        let is_shown = self.shown_wait.is_some_and(|shown| since < shown + LINE_SHOWN);
        let is_new = !is_shown && self.wanted.is_none() && now - since >= LINE_SHOWN;
        if is_new {
            self.want_place(Some(since), true);
        }
        is_new
    }

    /// Notes that this provider polls, for the lack of a stream. Returns whether the document is to be written, because others
    /// have to leave it a longer time slot.
    pub(super) fn note_polling(&mut self) -> bool {
        let is_new = std::mem::take(&mut self.has_stream) && self.wanted.is_none();
        if is_new {
            self.want_place(self.shown_wait, true);
        }
        is_new
    }

    fn want_place(&mut self, waiting: Option<Instant>, is_kept: bool) {
        self.shown_wait = waiting;
        self.wanted = Some(Write::Place(PlaceRequest {
            waiting,
            last: self.last_place,
            is_kept,
        }));
    }

    /// Whether the document is not as it should be.
    pub(super) fn wants_write(&self) -> bool {
        self.wanted.is_some()
    }

    /// Takes the write that is due.
    pub(super) fn take_write(&mut self) -> Option<Write> {
        self.wanted.take()
    }

    /// This provider has acquired the lock.
    pub(super) fn acquired(&mut self, acquired: OwnAcquisition) {
        self.yields_until = None;
        self.was_last = true;
        self.idle_since = None;
        self.order.acquired();
        self.user = acquired.user;
        self.has_stream = acquired.has_stream;
        self.want_move(acquired.waiting_since);
    }

    /// This provider has released the lock.
    pub(super) fn released(&mut self, now: Instant) {
        // The event of the next acquisition may arrive before the reply to the release.
        if self.was_last && self.order.others_wait(now) {
            self.yields_until = Some(now + self.order.yield_time(self.has_stream));
        }
        self.may_be_idle(now);
    }

    /// Another provider has the lock. If it is not the one that was known to have it, it has acquired it.
    pub(super) fn held_by(&mut self, now: Instant, lock_id: &Arc<str>) {
        let known = self
            .holder
            .as_ref()
            .is_some_and(|holder| holder.lock_id == *lock_id);
        if known {
            return;
        }
        if lock_id::has_changed_hands(lock_id) {
            // A lease was detached or resumed, and nobody has acquired the lock. Its beginning is known as well as before.
            let since = self.holder.take().map_or(now, |holder| holder.since);
            self.holder = Some(OtherClaim {
                lock_id: Arc::clone(lock_id),
                since,
            });
            return;
        }
        self.holder = Some(OtherClaim {
            lock_id: Arc::clone(lock_id),
            since: now,
        });
        // A claim for a set may be given back at once, because another lock of the set is held. It counts all the same:
        // sets that count for nothing would leave each other the time slots of all, and the releaser would win. A provider that
        // gives a claim back keeps its document, so that the next reading has it in its place again.
        self.order
            .acquired_by(now, ProviderMark::in_lock_id(lock_id), self.width);
        self.yields_until = None;
        self.was_last = false;
    }

    /// What a waiter knows of its place now.
    pub(super) fn standing(&self, now: Instant) -> Standing {
        let ahead = self.ahead();
        let time_slots = self.time_slots(ahead, now);
        // Until then the lock is left to anyone after an own release, and to those before this provider in line.
        let after_release = self.yields_until.filter(|until| *until > now);
        let in_line = (!time_slots.is_zero()).then(|| now + time_slots);
        Standing {
            ahead,
            time_slots,
            polling_pause: self.polling_pause(ahead, now),
            yields_until: after_release.max(in_line),
        }
    }

    fn polling_pause(&self, ahead: usize, now: Instant) -> Duration {
        let place = u32::try_from(ahead).unwrap_or(u32::MAX);
        let held_for = self
            .holder
            .as_ref()
            .map_or(Duration::ZERO, |holder| now - holder.since);
        LINE_POLL
            .saturating_mul(place.max(1))
            .max(held_for / LINE_POLL_PART)
    }

    /// Takes over the line as it was read.
    pub(super) fn read(&mut self, line: &[Waiter], own: &str) {
        self.order.read(line, own);
        let last = line.last().map(|last| last.at);
        self.last_place = self.last_place.max(last);
    }

    /// How long this provider leaves a lock that was released to others, of which so many stand before it.
    fn time_slots(&self, ahead: usize, now: Instant) -> Duration {
        let time_slots = if ahead == 0 {
            Duration::ZERO
        } else {
            self.order.time_slots_ahead()
        };
        if self.leaves_time_without_line(now) {
            time_slots.max(LINE_SLOT_WITHOUT_LINE)
        } else {
            time_slots
        }
    }

    /// After its own release a program that stands in no line asks again at once, before any waiter hears of the release.
    fn leaves_time_without_line(&self, now: Instant) -> bool {
        let is_without_line = |holder: &OtherClaim| {
            let is_detached = lock_id::has_changed_hands(&holder.lock_id);
            ProviderMark::in_lock_id(&holder.lock_id).is_none() && !is_detached
        };
        let was_last = !self.was_last && self.holder.as_ref().is_some_and(is_without_line);
        self.order.was_acquired_without_line(now) && !was_last
    }

    /// The number of waiters that are to ask before this provider.
    fn ahead(&self) -> usize {
        self.order.ahead().saturating_sub(self.width - 1)
    }

    /// Sets how many waiters ask at once. A width of one changes nothing, because its caller may not know the number of permits.
    pub(super) fn set_width(&mut self, width: usize) {
        if width > 1 {
            self.width = width;
        }
    }

    pub(super) fn rivals(&self, now: Instant) -> Rivals {
        if self.order.others_wait(now) {
            Rivals::Wait {
                has_stream: self.has_stream,
                some_without_line: self.order.was_acquired_without_line(now),
            }
        } else {
            Rivals::None
        }
    }

    /// Notes that the last user of the name may have left.
    pub(super) fn may_be_idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    /// The time at which it is to be checked whether the provider leaves the line.
    pub(super) fn check_at(&self) -> Option<Instant> {
        self.idle_since.map(|since| since + LINE_LINGER)
    }

    /// Has the provider leave the line if the name has had no user for a while.
    pub(super) fn leave_if_idle(&mut self, now: Instant) {
        if self.has_user() {
            if self.check_at().is_some_and(|at| at <= now) {
                self.idle_since = None;
            }
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if since + LINE_LINGER <= now {
            self.idle_since = None;
            self.wanted = Some(Write::Leave);
        }
    }

    /// Another user of the same name: the provider does not leave the line.
    pub(super) fn set_user(&mut self, user: User) {
        self.user = user;
        self.idle_since = None;
        if matches!(self.wanted, Some(Write::Leave)) {
            self.wanted = None;
        }
    }

    pub(super) fn has_user(&self) -> bool {
        self.user.strong_count() > 0
    }

    /// Notes that a write has failed, which is repeated unless there is another one.
    pub(super) fn put_back(&mut self, write: Write) {
        let is_used_again = matches!(write, Write::Leave) && self.has_user();
        if !is_used_again && self.wanted.is_none() {
            self.wanted = Some(write);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use mongodb::bson::DateTime;

    use super::*;
    use crate::protocol::Kind;

    fn waiter(provider: &str, at: i64) -> Waiter {
        Waiter {
            provider: Arc::from(provider),
            owner: provider.to_owned(),
            at: DateTime::from_millis(at),
            since: None,
            time_slot: Duration::from_millis(5),
        }
    }

    /// Its provider stands behind this one from then on, and one in front that has died has let an acquisition pass.
    #[test]
    fn an_acquisition_for_a_set_counts() {
        let now = Instant::now();
        let [first, last] = [(); 2].map(|()| ProviderMark::random());
        let user: User = Weak::<()>::new();
        let mut line = Line::new(user, true);
        line.read(
            &[waiter("expired", 1), waiter(first.as_str(), 2), waiter("own", 3)],
            "own",
        );
        line.released(now);
        assert!(line.yields_until.is_some());
        line.held_by(now, &first.new_lock_id("first", Kind::Set));
        assert_eq!(line.ahead(), 1);
        assert!(line.yields_until.is_none());
        for _ in 0..4 {
            line.held_by(now, &last.new_lock_id("last", Kind::Set));
        }
        assert_eq!(line.ahead(), 1);
        line.held_by(now, &last.new_lock_id("last", Kind::Set));
        assert_eq!(line.ahead(), 0, "six acquisitions have passed");
    }

    /// A lease that is detached and resumed by other providers is one turn.
    #[test]
    fn a_change_of_hands_is_no_acquisition() {
        let now = Instant::now();
        let [first, other] = [(); 2].map(|()| ProviderMark::random());
        let user: User = Weak::<()>::new();
        let mut line = Line::new(user, true);
        line.read(
            &[waiter(first.as_str(), 1), waiter("a", 2), waiter("own", 3)],
            "own",
        );
        line.held_by(now, &first.new_lock_id("first", Kind::Single));
        assert_eq!(line.ahead(), 1);
        let later = now + Duration::from_secs(10);
        for text in 0..20 {
            line.held_by(later, &lock_id::detached("session", &text.to_string(), false));
            line.held_by(later, &other.new_lock_id("session", Kind::Resumed));
        }
        assert_eq!(line.ahead(), 1, "nobody has been overtaken");
        assert!(
            !line.leaves_time_without_line(later),
            "no program without a place has acquired the lock"
        );
        assert_eq!(line.holder.map(|holder| holder.since), Some(now));
    }

    /// Two of those that wait for one of three permits may stand before another one that asks at once.
    #[test]
    fn the_first_of_several_permits_leave_each_other_no_time_slots() {
        let now = Instant::now();
        let user: User = Weak::<()>::new();
        let mut line = Line::new(user, true);
        line.read(
            &[waiter("a", 1), waiter("b", 2), waiter("c", 3), waiter("own", 4)],
            "own",
        );
        assert_eq!(line.ahead(), 3);
        line.set_width(3);
        assert_eq!(line.ahead(), 1);
        assert!(!line.standing(now).time_slots.is_zero());
        line.set_width(4);
        assert_eq!((line.ahead(), line.standing(now).time_slots), (0, Duration::ZERO));
    }
}

//! The time limits of the command.

use std::time::Duration;

use crate::clock::{BootTime, monotonic_and_offset};

/// The longest time between SIGTERM and the end of the lease; for a long lease, between SIGTERM and SIGKILL.
const TERM_LEAD: Duration = Duration::from_secs(5);

/// The shortest time before the end of a lease at which the command gets SIGKILL: delivery and the end of the processes
/// take a part of it.
const KILL_LEAD: Duration = Duration::from_millis(100);

/// A smaller difference between the clocks comes from the imprecision of their readings.
const SUSPENSION: Duration = Duration::from_millis(5);

/// The times at which the processes of the command get signals if the lease is not renewed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// SIGTERM.
    pub(super) term_at: BootTime,
    /// SIGKILL.
    pub(super) kill_at: BootTime,
}

impl Limits {
    /// The limits for a lease of this expiry that ends at this time.
    pub(super) fn new(end: BootTime, expiry: Duration) -> Self {
        let kill_lead = KILL_LEAD.max(expiry / 20);
        let term_lead = TERM_LEAD.min(expiry / 6);
        // With a long lease SIGKILL would come first.
        let is_close = kill_lead >= term_lead / 2;
        let term_lead = if is_close {
            kill_lead + term_lead
        } else {
            term_lead
        };
        Self {
            term_at: end.minus(term_lead),
            kill_at: end.minus(kill_lead),
        }
    }
}

/// Finds the end of a lease on the boot clock.
///
/// The library counts a lease on a clock that stops while the machine is suspended, and the server does not. So the end
/// is counted with the suspensions up to the moment at which the request of the lease was sent: later ones have
/// shortened it.
pub(super) struct LeaseClock {
    expiry: Duration,
    /// The offsets of the boot clock, each with the monotonic time at which it was first seen, in their order.
    offsets: Vec<(Duration, Duration)>,
}

impl LeaseClock {
    /// A clock for leases of this expiry. It must be made before the first one is requested.
    pub(super) fn new(expiry: Duration) -> Self {
        Self {
            expiry,
            offsets: vec![monotonic_and_offset()],
        }
    }

    /// The expiry of the leases.
    pub(super) fn expiry(&self) -> Duration {
        self.expiry
    }

    /// The limits for the time that remains of a lease by the library's clock, which must be read by `remaining`: the
    /// clock is read before.
    pub(super) fn limits(&mut self, remaining: impl FnOnce() -> Duration) -> Limits {
        let (now, offset) = monotonic_and_offset();
        let end = self.end(now, offset, remaining());
        Limits::new(end, self.expiry)
    }

    fn end(&mut self, now: Duration, offset: Duration, remaining: Duration) -> BootTime {
        let end = now + remaining;
        // The library subtracts a margin, so the request was sent at this time or later.
        let sent = end.saturating_sub(self.expiry);
        self.note(now, offset, sent);
        BootTime::from_start(end + self.offset_at(sent))
    }

    /// Stores the offset if it has changed, and removes those that no request can have any more.
    fn note(&mut self, now: Duration, offset: Duration, sent: Duration) {
        let last = self.offsets.last().map_or(Duration::ZERO, |(_, offset)| *offset);
        if offset > last + SUSPENSION {
            self.offsets.push((now, offset));
        }
        while self.offsets.get(1).is_some_and(|(seen, _)| *seen <= sent) {
            self.offsets.remove(0);
        }
    }

    /// The offset at this time. Between two readings the machine may have been suspended at any time, so the earlier one
    /// counts.
    fn offset_at(&self, time: Duration) -> Duration {
        let known = self.offsets.iter().rev().find(|(seen, _)| *seen <= time);
        let (_, offset) = known.or(self.offsets.first()).copied().unwrap_or_default();
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn clock(offset: Duration) -> LeaseClock {
        LeaseClock {
            expiry: seconds(30),
            offsets: vec![(seconds(0), offset)],
        }
    }

    #[test]
    fn the_signals_come_before_the_end() {
        let lead = |expiry: Duration| {
            let end = BootTime::from_start(seconds(1000));
            let Limits { term_at, kill_at } = Limits::new(end, expiry);
            (end.0 - term_at.0, end.0 - kill_at.0)
        };
        assert_eq!(lead(seconds(6)), (1_000_000_000, 300_000_000));
        assert_eq!(lead(seconds(30)), (5_000_000_000, 1_500_000_000));
        assert_eq!(lead(seconds(49)), (5_000_000_000, 2_450_000_000));
        assert_eq!(lead(seconds(50)), (7_500_000_000, 2_500_000_000));
        assert_eq!(lead(seconds(600)), (35_000_000_000, 30_000_000_000));
    }

    #[test]
    fn a_suspension_shortens_the_lease_that_was_granted_before_it() {
        let mut clock = clock(seconds(7));
        let moment = |second| BootTime::from_start(seconds(second));
        // Requested at 100, read at 100 and at 110.
        assert_eq!(clock.end(seconds(100), seconds(7), seconds(30)), moment(137));
        assert_eq!(clock.end(seconds(110), seconds(7), seconds(20)), moment(137));
        // The machine is suspended for 60 s; nothing was renewed.
        assert_eq!(clock.end(seconds(111), seconds(67), seconds(19)), moment(137));
        // The reply to a request from before the suspension, requested at 110.
        assert_eq!(clock.end(seconds(112), seconds(67), seconds(28)), moment(147));
        // A renewal that was requested at 112.
        assert_eq!(clock.end(seconds(113), seconds(67), seconds(29)), moment(209));
        assert_eq!(clock.offsets.len(), 1, "the earlier offset is no longer needed");
    }

    #[test]
    fn imprecise_readings_are_no_suspension() {
        let mut clock = clock(seconds(7));
        let jitter = seconds(7) + Duration::from_millis(2);
        clock.end(seconds(100), jitter, seconds(30));
        assert_eq!(clock.offsets.len(), 1);
    }
}

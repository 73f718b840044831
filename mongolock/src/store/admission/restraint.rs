use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use crate::timing::{OVERLOAD_PAUSE_MAX, OVERLOAD_PAUSE_MIN};

/// The least number of commands that may be in flight or pausing, so that the end of an overload is found.
const LEAST: f64 = 4.0;

/// The same while the driver pauses in rejected commands, which are seldom at the server then, and some commands succeed.
const LEAST_OF_PAUSING: f64 = 8.0;

/// A rejection that takes so long shows that the driver has paused and sent the command again.
const DRIVER_PAUSES: Duration = Duration::from_millis(100);

/// How much the number of commands changes with each outcome.
const STEP: f64 = 0.1;

/// The number of rejections in a row after which the pause grows, and from which on it has its greatest length: of so many
/// commands one should have succeeded, unless the server rejects almost everything.
const GROWTH: RangeInclusive<i32> = 10..=50;

/// How many acquire requests, copies and repeated releases may be in flight or pausing while the server rejects commands for
/// overload: it falls by a tenth with a rejection and rises by a tenth with a success. Renewals and first releases are not
/// restrained: they keep what was granted, and free what others wait for.
#[derive(Default)]
pub(super) struct Restraint {
    /// The number of those commands; `None` if they are not restrained.
    most: Option<f64>,
    /// The number of rejections since the last success.
    rejections: i32,
    /// Whether the driver has paused in the last rejected command.
    driver_pauses: bool,
    /// The ends of the pauses of rejected acquire requests.
    pauses: Vec<Instant>,
}

impl Restraint {
    /// Notes the rejection of a command that took this time, while this number of commands was in flight.
    pub(super) fn rejected(&mut self, took: Duration, in_flight: usize) {
        let most = self.most.unwrap_or(as_number(in_flight + self.pauses.len()));
        self.most = Some(most * (1.0 - STEP));
        self.rejections = self.rejections.saturating_add(1);
        self.driver_pauses = took >= DRIVER_PAUSES;
    }

    /// Whether the driver pauses in commands: those use no connection meanwhile.
    pub(super) fn driver_pauses(&self) -> bool {
        self.most.is_some() && self.driver_pauses
    }

    /// The number of commands that may be in flight or pausing in any case.
    fn least(&self) -> f64 {
        if self.driver_pauses && self.rejections <= *GROWTH.start() {
            LEAST_OF_PAUSING
        } else {
            LEAST
        }
    }

    /// Notes a success. `size` is the number of commands that may be in flight in any case.
    pub(super) fn succeeded(&mut self, size: usize) {
        self.rejections = 0;
        self.pauses.clear();
        let least = self.least();
        self.most = self.most.map(|most| most.max(least) * (1.0 + STEP));
        self.most.take_if(|most| *most > as_number(size));
    }

    /// The pause after a rejection: short at first, because a part of the commands may succeed.
    pub(super) fn pause(&self) -> Duration {
        let growth = (1.0 + STEP).powi(self.rejections.min(*GROWTH.end()) - GROWTH.start());
        OVERLOAD_PAUSE_MIN
            .mul_f64(growth.max(1.0))
            .min(OVERLOAD_PAUSE_MAX)
    }

    /// Begins such a pause.
    pub(super) fn begin_pause(&mut self, now: Instant) {
        self.pauses.retain(|end| *end > now);
        self.pauses.push(now + self.pause());
    }

    /// Whether another command may begin while this number of them is in flight.
    pub(super) fn has_room(&self, in_flight: usize) -> bool {
        let Some(most) = self.most else {
            return true;
        };
        let now = Instant::now();
        let pausing = self.pauses.iter().filter(|end| **end > now).count();
        as_number(in_flight + pausing) + 1.0 <= most.max(self.least())
    }

    /// The time until the first pause ends; `None` if there is none.
    pub(super) fn until_room(&self) -> Option<Duration> {
        let now = Instant::now();
        let ends = self.pauses.iter().filter(|end| **end > now);
        ends.min().map(|end| *end - now)
    }
}

fn as_number(commands: usize) -> f64 {
    u32::try_from(commands).unwrap_or(u32::MAX).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rejections_leave_fewer_places_and_successes_give_them_back() {
        let mut restraint = Restraint::default();
        assert!(restraint.has_room(1_000));
        restraint.rejected(Duration::ZERO, 20);
        let pause = restraint.pause();
        restraint.begin_pause(Instant::now());
        // Eighteen places, one of which has a pause.
        assert!(restraint.has_room(16) && !restraint.has_room(17));
        assert_eq!(restraint.until_room(), Some(pause));
        tokio::time::sleep(pause).await;
        assert!(restraint.has_room(17) && !restraint.has_room(18));
        for _ in 0..100 {
            restraint.rejected(Duration::ZERO, 4);
        }
        assert!(restraint.has_room(3) && !restraint.has_room(4));
        restraint.begin_pause(Instant::now());
        assert!(!restraint.has_room(3));
        restraint.succeeded(8);
        assert!(restraint.has_room(3) && !restraint.has_room(4), "4.4 places");
        for _ in 0..10 {
            restraint.succeeded(8);
        }
        assert!(restraint.has_room(1_000));
    }

    #[test]
    fn pauses_grow_until_the_next_success() {
        let mut restraint = Restraint::default();
        let mut pause_after = |rejections: i32| {
            (0..rejections).for_each(|_| restraint.rejected(Duration::ZERO, 1));
            restraint.pause()
        };
        assert_eq!(pause_after(*GROWTH.start()), OVERLOAD_PAUSE_MIN);
        assert!(pause_after(1) > OVERLOAD_PAUSE_MIN);
        assert_eq!(pause_after(1_000), OVERLOAD_PAUSE_MAX);
        restraint.succeeded(100);
        assert_eq!(restraint.pause(), OVERLOAD_PAUSE_MIN);
    }

    #[test]
    fn more_commands_may_be_in_flight_while_the_driver_pauses_in_them() {
        let mut restraint = Restraint::default();
        for _ in 0..*GROWTH.start() {
            restraint.rejected(DRIVER_PAUSES, 4);
        }
        assert!(restraint.has_room(7) && !restraint.has_room(8));
        restraint.rejected(DRIVER_PAUSES, 4);
        assert!(
            restraint.has_room(3) && !restraint.has_room(4),
            "all are rejected"
        );
        restraint.succeeded(100);
        assert!(restraint.driver_pauses());
        for _ in 0..*GROWTH.start() {
            restraint.rejected(Duration::ZERO, 4);
        }
        assert!(!restraint.driver_pauses());
        assert!(restraint.has_room(3) && !restraint.has_room(4));
    }
}

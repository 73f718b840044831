use std::time::Duration;

use tokio::time::Instant;

use crate::timing::{OVERLOAD_PAUSE_MAX, OVERLOAD_PAUSE_MIN};

/// The least number of commands that may be in flight or pausing, so that the end of an overload is found.
const LEAST: f64 = 4.0;

/// How much the number of commands changes with each outcome.
const STEP: f64 = 0.1;

/// The number of rejections in a row from which on the pause no longer grows: it has its bound before.
const MOST_GROWTH: i32 = 40;

/// How many acquire requests, copies and repeated releases may be in flight or pausing while the server rejects commands for
/// overload: it falls by a tenth with a rejection and rises by a tenth with a success. Renewals and first releases are not restrained: they keep what was granted, and
/// free what others wait for.
#[derive(Default)]
pub(super) struct Restraint {
    /// The number of those commands; `None` if they are not restrained.
    most: Option<f64>,
    /// The number of rejections since the last success.
    rejections: i32,
    /// The ends of the pauses after rejections. A rejected command keeps its place until then.
    pauses: Vec<Instant>,
}

impl Restraint {
    /// Notes a rejection, while this number of commands was in flight.
    pub(super) fn rejected(&mut self, now: Instant, in_flight: usize) {
        self.pauses.retain(|end| *end > now);
        let most = self.most.unwrap_or(as_number(in_flight + self.pauses.len()));
        self.most = Some((most * (1.0 - STEP)).max(LEAST));
        self.rejections = self.rejections.saturating_add(1);
        self.pauses.push(now + self.pause());
    }

    /// Notes a success. `size` is the number of commands that may be in flight in any case.
    pub(super) fn succeeded(&mut self, size: usize) {
        self.rejections = 0;
        self.most = self.most.map(|most| most * (1.0 + STEP));
        self.most.take_if(|most| *most > as_number(size));
        if self.most.is_none() {
            self.pauses.clear();
        }
    }

    /// The pause after a rejection: short at first, because a part of the commands may succeed.
    pub(super) fn pause(&self) -> Duration {
        let growth = (1.0 + STEP).powi(self.rejections.min(MOST_GROWTH));
        OVERLOAD_PAUSE_MIN.mul_f64(growth).min(OVERLOAD_PAUSE_MAX)
    }

    /// Whether another command may begin while this number of them is in flight.
    pub(super) fn has_room(&self, in_flight: usize) -> bool {
        let Some(most) = self.most else {
            return true;
        };
        let now = Instant::now();
        let pausing = self.pauses.iter().filter(|end| **end > now).count();
        as_number(in_flight + pausing) + 1.0 <= most
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
        restraint.rejected(Instant::now(), 20);
        // Eighteen places, one of which has a pause.
        assert!(restraint.has_room(16) && !restraint.has_room(17));
        tokio::time::sleep(OVERLOAD_PAUSE_MAX).await;
        assert!(restraint.has_room(17) && !restraint.has_room(18));
        for _ in 0..100 {
            restraint.rejected(Instant::now(), 4);
            tokio::time::sleep(OVERLOAD_PAUSE_MAX).await;
        }
        assert!(restraint.has_room(3) && !restraint.has_room(4));
        restraint.succeeded(8);
        assert!(!restraint.has_room(4), "4.4 places");
        for _ in 0..10 {
            restraint.succeeded(8);
        }
        assert!(restraint.has_room(1_000));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_the_next_success() {
        let mut restraint = Restraint::default();
        restraint.rejected(Instant::now(), 1);
        assert_eq!(restraint.until_room(), Some(restraint.pause()));
        assert!(restraint.pause() < OVERLOAD_PAUSE_MIN * 2);
        for _ in 0..1_000 {
            restraint.rejected(Instant::now(), 1);
        }
        assert_eq!(restraint.pause(), OVERLOAD_PAUSE_MAX);
        restraint.succeeded(100);
        assert_eq!(restraint.pause(), OVERLOAD_PAUSE_MIN);
    }
}

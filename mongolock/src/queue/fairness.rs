use crate::timing::{HANDOVER_MAX, HANDOVER_MIN};

use std::time::Duration;

/// The fairness of one process to others: for how long it hands a lock over inside itself.
#[derive(Debug)]
pub(crate) struct Streak {
    limit: Duration,
    /// The last streak has used up its time: the next claim leaves others a moment.
    ended: bool,
}

impl Default for Streak {
    fn default() -> Self {
        Self {
            limit: HANDOVER_MIN,
            ended: false,
        }
    }
}

impl Streak {
    /// Whether a streak that has lasted so long may go on.
    pub(crate) fn goes_on(&mut self, lasted: Duration) -> bool {
        self.ended = lasted >= self.limit;
        !self.ended
    }

    pub(crate) fn owes_courtesy(&self) -> bool {
        self.ended
    }

    /// The moment that the next claim leaves to others, if it follows a streak that has used up its time.
    pub(crate) fn courtesy(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.ended).then(|| Duration::from_millis(fastrand::u64(2..=5)))
    }

    /// Another process holds the lock: share it out in small pieces.
    pub(crate) fn others_want_it(&mut self) {
        self.limit = HANDOVER_MIN;
    }

    /// Nobody has used the moment left to others.
    pub(crate) fn nobody_wants_it(&mut self) {
        self.limit = (self.limit * 2).min(HANDOVER_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streak_grows_while_nobody_else_wants_the_lock() {
        let mut streak = Streak::default();
        assert!(streak.goes_on(HANDOVER_MIN / 2) && streak.courtesy().is_none());
        assert!(!streak.goes_on(HANDOVER_MIN) && streak.courtesy().is_some() && streak.courtesy().is_none());
        for _ in 0..10 {
            streak.nobody_wants_it();
        }
        assert!(streak.goes_on(HANDOVER_MAX / 2) && !streak.goes_on(HANDOVER_MAX));
        streak.others_want_it();
        assert!(!streak.goes_on(HANDOVER_MIN));
    }
}

use crate::timing::{HANDOVER_MAX, HANDOVER_MIN};

use std::time::Duration;

/// The fairness of one process to others: for how long it hands a lock over inside itself.
#[derive(Debug)]
pub(crate) struct HandoverBudget {
    limit: Duration,
    /// The last row of hand-overs has used up its time: the next acquire request leaves others a moment.
    ended: bool,
}

impl Default for HandoverBudget {
    fn default() -> Self {
        Self {
            limit: HANDOVER_MIN,
            ended: false,
        }
    }
}

impl HandoverBudget {
    /// Whether a row of hand-overs that has lasted so long may go on.
    pub(crate) fn allows(&mut self, lasted: Duration) -> bool {
        self.ended = lasted >= self.limit;
        !self.ended
    }

    pub(crate) fn must_yield(&self) -> bool {
        self.ended
    }

    /// The moment that the next acquire request leaves to others, if the last row of hand-overs has used up its time.
    pub(crate) fn yield_to_others(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.ended).then(|| Duration::from_millis(fastrand::u64(2..=5)))
    }

    /// Another process holds the lock: share it out in small pieces.
    pub(crate) fn shrink(&mut self) {
        self.limit = HANDOVER_MIN;
    }

    /// Nobody has used the moment left to others.
    pub(crate) fn grow(&mut self) {
        self.limit = (self.limit * 2).min(HANDOVER_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streak_grows_while_nobody_else_wants_the_lock() {
        let mut budget = HandoverBudget::default();
        assert!(budget.allows(HANDOVER_MIN / 2) && budget.yield_to_others().is_none());
        assert!(
            !budget.allows(HANDOVER_MIN)
                && budget.yield_to_others().is_some()
                && budget.yield_to_others().is_none()
        );
        for _ in 0..10 {
            budget.grow();
        }
        assert!(budget.allows(HANDOVER_MAX / 2) && !budget.allows(HANDOVER_MAX));
        budget.shrink();
        assert!(!budget.allows(HANDOVER_MIN));
    }
}

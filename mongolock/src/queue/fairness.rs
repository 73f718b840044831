use crate::timing::{HANDOVER_MAX, HANDOVER_MIN};

use std::time::Duration;

/// The time for which a process hands a lock over among its own waiters, limited so that other processes get a turn.
#[derive(Debug)]
pub(crate) struct HandoverBudget {
    /// The longest duration of a row of hand-overs.
    limit: Duration,
    /// Whether the last row of hand-overs has used up its time: then the next acquire request lets other processes go
    /// first.
    is_used_up: bool,
}

impl Default for HandoverBudget {
    fn default() -> Self {
        Self {
            limit: HANDOVER_MIN,
            is_used_up: false,
        }
    }
}

impl HandoverBudget {
    /// Whether a row of hand-overs that has lasted for this time may go on.
    pub(crate) fn allows(&mut self, lasted: Duration) -> bool {
        self.is_used_up = lasted >= self.limit;
        !self.is_used_up
    }

    pub(crate) fn must_yield(&self) -> bool {
        self.is_used_up
    }

    /// The pause before the next acquire request, in which other processes can acquire the lock; `None` unless the last
    /// row of hand-overs has used up its time.
    pub(crate) fn yield_to_others(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.is_used_up).then(|| Duration::from_millis(fastrand::u64(2..=5)))
    }

    /// Shortens the budget, because another process holds the lock.
    pub(crate) fn shrink(&mut self) {
        self.limit = HANDOVER_MIN;
    }

    /// Doubles the budget for the next row of hand-overs; it is shortened again if another process takes the lock.
    pub(crate) fn grow(&mut self) {
        self.limit = (self.limit * 2).min(HANDOVER_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_grows_while_no_other_process_wants_the_lock() {
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

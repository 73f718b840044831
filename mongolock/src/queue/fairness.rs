use std::time::Duration;

use tokio::time::Instant;

use crate::timing::{HANDOVER_MAX, HANDOVER_MAX_SLOW, HANDOVER_MIN, HANDOVER_REQUESTS};

/// The time for which a process hands a lock over among its own waiters, limited so that other processes get a turn.
#[derive(Debug)]
pub(crate) struct HandoverBudget {
    /// The longest duration of a row of hand-overs on a server that replies fast, in milliseconds: each held lock has a
    /// budget, and this takes less memory than a `Duration`.
    limit_ms: u16,
    /// The time at which the present row of hand-overs may no longer go on; `None` before the first one.
    row_ends: Option<Instant>,
    /// Whether the last row of hand-overs has used up its time: then the next acquire request lets other processes go
    /// first.
    is_used_up: bool,
}

impl Default for HandoverBudget {
    fn default() -> Self {
        Self {
            limit_ms: in_millis(HANDOVER_MIN),
            row_ends: None,
            is_used_up: false,
        }
    }
}

impl HandoverBudget {
    /// Begins a row of hand-overs when the lock was acquired from the server by a request that took this time. On a slow
    /// server the row is longer: each row costs the server two commands, and short rows would make it slower still.
    pub(crate) fn begin_row(&mut self, request: Duration) {
        let slow = (request * HANDOVER_REQUESTS).min(HANDOVER_MAX_SLOW);
        self.row_ends = Some(Instant::now() + Duration::from_millis(self.limit_ms.into()).max(slow));
    }

    /// Whether the present row of hand-overs may go on.
    pub(crate) fn allows_handover(&mut self) -> bool {
        self.is_used_up = self.row_ends.is_none_or(|end| end <= Instant::now());
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
        self.limit_ms = in_millis(HANDOVER_MIN);
    }

    /// Doubles the budget for the next row of hand-overs; it is shortened again if another process takes the lock.
    pub(crate) fn grow(&mut self) {
        self.limit_ms = self.limit_ms.saturating_mul(2).min(in_millis(HANDOVER_MAX));
    }
}

/// A limit of hand-overs in milliseconds, which are few.
fn in_millis(limit: Duration) -> u16 {
    u16::try_from(limit.as_millis()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of a row after a request of this length.
    async fn row_length(budget: &mut HandoverBudget, request: Duration) -> Duration {
        let begun = Instant::now();
        budget.begin_row(request);
        while budget.allows_handover() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_grows_while_no_other_process_wants_the_lock() {
        let (mut budget, fast) = (HandoverBudget::default(), Duration::ZERO);
        assert!(budget.yield_to_others().is_none());
        assert_eq!(row_length(&mut budget, fast).await, HANDOVER_MIN);
        assert!(budget.yield_to_others().is_some() && budget.yield_to_others().is_none());
        for _ in 0..10 {
            budget.grow();
        }
        assert_eq!(row_length(&mut budget, fast).await, HANDOVER_MAX);
        budget.shrink();
        assert_eq!(row_length(&mut budget, fast).await, HANDOVER_MIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_makes_a_row_longer_up_to_a_limit() {
        let mut budget = HandoverBudget::default();
        let request = HANDOVER_MIN * 2;
        assert_eq!(
            row_length(&mut budget, request).await,
            request * HANDOVER_REQUESTS
        );
        assert_eq!(
            row_length(&mut budget, HANDOVER_MAX_SLOW).await,
            HANDOVER_MAX_SLOW
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_the_request_does_not_count_against_the_row() {
        let mut budget = HandoverBudget::default();
        tokio::time::sleep(HANDOVER_MIN * 2).await;
        budget.begin_row(HANDOVER_MIN * 2);
        assert!(budget.allows_handover());
    }
}

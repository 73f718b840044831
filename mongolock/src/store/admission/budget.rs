//! How many commands with requests of one lane may be in flight before the requests gather.
//!
//! A server that is near answers one command with many requests sooner than many commands, so that few of them should be in
//! flight; over a distance each command takes a while whatever it has, so that many should. The replies tell which it is: one
//! that is hardly slower than the fastest shows that the server has room for more.

use std::time::Duration;

/// The weight of a command with one request.
const ALONE: u32 = 1;

/// The weight of a command with several requests.
const TOGETHER: u32 = 4;

/// The number of commands with one request that may be in flight, at first.
const FIRST: f64 = 8.0;

/// The least and the greatest of this number.
const LEAST: f64 = 4.0;
const MOST: f64 = 32.0;

/// The part of the fastest reply by which it is forgotten with each reply: the way to the server may change.
const FORGOTTEN: f64 = 1.002;

/// A reply that takes this many times the fastest one, or less, shows that the server has room.
const FAST: f64 = 1.4;

/// A reply that takes more than this many times the fastest one shows that it has none.
const SLOW: f64 = 1.8;

/// What a fast reply adds, if all is used, and the factor of a slow one.
const MORE: f64 = 0.25;
const LESS: f64 = 0.9;

/// The commands in flight of one lane.
#[derive(Debug)]
pub(super) struct Budget {
    /// The sum of their weights.
    used: u32,
    /// The sum of the weights from which on no other command begins.
    most: f64,
    /// The time of the fastest recent reply in seconds; infinite before the first one.
    fastest: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            used: 0,
            most: FIRST,
            fastest: f64::INFINITY,
        }
    }
}

impl Budget {
    /// The weight of a command with this number of requests.
    pub(super) fn weight(requests: usize) -> u32 {
        if requests == 1 { ALONE } else { TOGETHER }
    }

    pub(super) fn has_room(&self) -> bool {
        f64::from(self.used) < self.most
    }

    pub(super) fn begin(&mut self, weight: u32) {
        self.used += weight;
    }

    /// Notes the reply to a command of this weight, which took this time.
    pub(super) fn end(&mut self, weight: u32, took: Duration) {
        let was_used = f64::from(self.used) + f64::from(ALONE) > self.most;
        self.used -= weight;
        let took = took.as_secs_f64();
        self.fastest = took.min(self.fastest * FORGOTTEN);
        if took > self.fastest * SLOW {
            self.most = (self.most * LESS).max(LEAST);
        } else if took <= self.fastest * FAST && was_used {
            self.most = (self.most + MORE).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Uses the budget up, with single commands, and ends them after this time.
    fn use_up(budget: &mut Budget, took: Duration) -> u32 {
        let mut begun = 0;
        while budget.has_room() {
            budget.begin(ALONE);
            begun += ALONE;
        }
        for _ in 0..begun {
            budget.end(ALONE, took);
        }
        begun
    }

    #[test]
    fn a_budget_grows_while_replies_are_fast_and_shrinks_when_they_are_slow() {
        let mut budget = Budget::default();
        assert_eq!(use_up(&mut budget, MS), 8);
        for _ in 0..100 {
            use_up(&mut budget, MS);
        }
        assert_eq!(use_up(&mut budget, 3 * MS), 32);
        assert_eq!(use_up(&mut budget, 3 * MS), 4);
    }

    /// A budget that is not used up does not grow: nothing shows that the server has room for more.
    #[test]
    fn one_command_at_a_time_changes_nothing() {
        let mut budget = Budget::default();
        for _ in 0..1000 {
            budget.begin(ALONE);
            budget.end(ALONE, MS);
        }
        assert_eq!(use_up(&mut budget, MS), 8);
    }

    /// With the least budget, one command with many requests is in flight at a time.
    #[test]
    fn a_command_with_many_requests_uses_up_the_least_budget() {
        let mut budget = Budget::default();
        budget.begin(ALONE);
        budget.end(ALONE, MS);
        while budget.most > LEAST {
            budget.begin(ALONE);
            budget.end(ALONE, 9 * MS);
        }
        budget.begin(Budget::weight(64));
        assert!(!budget.has_room());
        budget.end(TOGETHER, 9 * MS);
        assert!(budget.has_room());
    }
}

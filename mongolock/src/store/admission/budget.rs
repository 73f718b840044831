//! How many commands with requests of one lane may be in flight before the requests gather.
//!
//! A server that is near answers one command with many requests sooner than many commands, so that few of them should be in
//! flight; over a distance each command takes a while whatever it has, so that many should. The replies tell which it is: one
//! that is hardly slower than the fastest shows that the server has room for more.

#[cfg(test)]
use std::time::Duration;

use tokio::time::Instant;

use crate::timing::LANE_LIMIT;

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
    in_flight: Vec<InLane>,
    /// The sum of the weights from which on no other command begins.
    most: f64,
    /// The time of the fastest recent reply in seconds; infinite before the first one.
    fastest: f64,
}

/// One command in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InLane {
    begun: Instant,
    weight: u32,
    /// The number of replies for which it waits, one after the other.
    replies: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            in_flight: Vec::new(),
            most: FIRST,
            fastest: f64::INFINITY,
        }
    }
}

impl Budget {
    /// Whether another command may begin. One that has been in flight for [`LANE_LIMIT`] does not count: it waits for a blocked
    /// document or a dead connection.
    pub(super) fn has_room(&self) -> bool {
        f64::from(self.used()) < self.most
    }

    fn used(&self) -> u32 {
        let counts = |command: &&InLane| command.begun.elapsed() < LANE_LIMIT;
        self.in_flight
            .iter()
            .filter(counts)
            .map(|command| command.weight)
            .sum()
    }

    /// Begins a command with this number of requests, which waits for so many replies, one after the other.
    pub(super) fn begin(&mut self, requests: usize, replies: u32) -> InLane {
        let command = InLane {
            begun: Instant::now(),
            weight: if requests == 1 { ALONE } else { TOGETHER },
            replies,
        };
        self.in_flight.push(command);
        command
    }

    /// Ends this command: it has a reply, or is given up.
    pub(super) fn end(&mut self, command: InLane) {
        let was_used = f64::from(self.used() + ALONE) > self.most;
        if let Some(index) = self.in_flight.iter().position(|other| *other == command) {
            self.in_flight.swap_remove(index);
        }
        let took = command.begun.elapsed().as_secs_f64() / f64::from(command.replies);
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
    use tokio::time::advance;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Uses the budget up with commands for one request each, and ends them after this time; returns their number.
    async fn use_up(budget: &mut Budget, took: Duration) -> usize {
        let mut begun = Vec::new();
        while budget.has_room() {
            begun.push(budget.begin(1, 1));
        }
        advance(took).await;
        let number = begun.len();
        for command in begun {
            budget.end(command);
        }
        number
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_grows_while_replies_are_fast_and_shrinks_when_they_are_slow() {
        let mut budget = Budget::default();
        assert_eq!(use_up(&mut budget, MS).await, 8);
        for _ in 0..100 {
            use_up(&mut budget, MS).await;
        }
        assert_eq!(use_up(&mut budget, 3 * MS).await, 32);
        assert_eq!(use_up(&mut budget, 3 * MS).await, 4);
    }

    /// Nothing shows that the server has room for more.
    #[tokio::test(start_paused = true)]
    async fn a_budget_that_is_not_used_up_does_not_grow() {
        let mut budget = Budget::default();
        for _ in 0..1000 {
            let command = budget.begin(1, 1);
            advance(MS).await;
            budget.end(command);
        }
        assert_eq!(use_up(&mut budget, MS).await, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_with_many_requests_uses_up_the_least_budget() {
        let mut budget = Budget::default();
        use_up(&mut budget, MS).await;
        while budget.most > LEAST {
            use_up(&mut budget, 9 * MS).await;
        }
        let command = budget.begin(64, 1);
        assert!(!budget.has_room());
        budget.end(command);
        assert!(budget.has_room());
    }

    /// Commands at blocked documents keep others for a while, and not as long as their limits.
    #[tokio::test(start_paused = true)]
    async fn commands_that_wait_for_long_do_not_count() {
        let mut budget = Budget::default();
        while budget.has_room() {
            budget.begin(1, 1);
        }
        advance(LANE_LIMIT.saturating_sub(MS)).await;
        assert!(!budget.has_room());
        advance(MS).await;
        assert!(budget.has_room());
    }
}

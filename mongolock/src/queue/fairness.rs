use std::time::Duration;

use tokio::time::Instant;

use crate::moment::Moment;
use crate::timing::{
    HANDOVER_MAX, HANDOVER_MAX_SLOW, HANDOVER_MIN, HANDOVER_OPEN, HANDOVER_POLLING, HANDOVER_REQUESTS,
};

/// The number of rows of hand-overs that stay short after another process was seen to hold the lock: about 5 s. One that
/// polls needs many short rows until it finds the lock free.
const SHORT_ROWS: u8 = 200;

/// For this number of callers that wait when a row begins, one more hold belongs to it. The change to another process costs
/// about as much as a short hold, so that longer rows do more work; in a row of two callers a third hold would make the waits
/// too uneven.
const WAITERS_FOR_ONE_MORE: usize = 3;

/// What a process knows of the other processes that want a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rivals {
    /// The waiters stand in no line, so it knows nothing.
    Unknown,
    /// No other process is known to want the lock.
    None,
    /// Other processes want the lock.
    Wait {
        /// Whether this process learns of releases by the change stream; it polls otherwise.
        has_stream: bool,
        /// Whether one of them is a program without a place in line, which finds the lock free by chance.
        some_without_line: bool,
    },
}

impl Rivals {
    /// What is known of those that want one of two locks, which are held together.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Wait {
                    has_stream,
                    some_without_line,
                },
                Self::Wait {
                    has_stream: other_has_stream,
                    some_without_line: other_without_line,
                },
            ) => Self::Wait {
                has_stream: has_stream && other_has_stream,
                some_without_line: some_without_line || other_without_line,
            },
            (wait @ Self::Wait { .. }, _) | (_, wait @ Self::Wait { .. }) => wait,
            (Self::None, Self::None) => Self::None,
            _ => Self::Unknown,
        }
    }
}

/// The time for which a process hands a lock over among its own waiters, limited so that other processes get the lock.
#[derive(Debug, Clone, Hash)]
pub(crate) struct HandoverBudget {
    /// The longest duration of a row of hand-overs on a server that replies fast, in milliseconds, where nothing is known
    /// of rivals: each held lock has a budget, and this takes less memory than a `Duration`.
    limit_ms: u16,
    /// The number of rows in which the limit does not grow yet, because another process was seen.
    short_rows: u8,
    /// The present row of hand-overs; `None` before the first one.
    row: Option<Row>,
    /// Whether the last row of hand-overs has used up its time, and nothing is known of rivals: then the next acquire
    /// request lets other processes go first.
    is_used_up: bool,
}

/// A row of hand-overs: the holds of this process on one claim.
#[derive(Debug, Clone, Hash)]
struct Row {
    begun: Instant,
    /// The time at which the present hold began.
    hold_begun: Instant,
    /// The least duration of the row, because the server is slow.
    slow: Duration,
    /// The number of callers that waited when the row began.
    waiting: usize,
    /// The number of holds after the first one.
    more_holds: usize,
}

impl Default for HandoverBudget {
    fn default() -> Self {
        Self {
            limit_ms: in_millis(HANDOVER_MIN),
            short_rows: 0,
            row: None,
            is_used_up: false,
        }
    }
}

impl HandoverBudget {
    /// Begins a row of hand-overs when the lock was acquired from the server by a request that took this time, while this
    /// number of callers waits. On a slow server the row is longer: each row costs the server two commands, and short rows
    /// would make it slower still.
    pub(crate) fn begin_row(&mut self, now: Instant, request: Duration, waiting: usize) {
        self.row = Some(Row {
            begun: now,
            hold_begun: now,
            slow: (request * HANDOVER_REQUESTS).min(HANDOVER_MAX_SLOW),
            waiting,
            more_holds: 0,
        });
    }

    /// Begins the row anew, because the caller has the other locks of its set only now, while this number of callers waits.
    pub(crate) fn restart_row(&mut self, now: Instant, waiting: usize) {
        if let Some(row) = &mut self.row {
            *row = Row {
                begun: now,
                hold_begun: now,
                slow: row.slow,
                waiting,
                more_holds: 0,
            };
        }
    }

    /// Whether the present row of hand-overs may go on with the next hold, which begins now then.
    pub(crate) fn allows_handover(&mut self, now: Instant, rivals: Rivals) -> bool {
        let Some(row) = &mut self.row else { return false };
        let age = now - row.begun;
        // The next hold takes as long as the present one, as far as is known.
        let age_then = age + (now - row.hold_begun);
        let allows = match rivals {
            Rivals::Unknown => age < Duration::from_millis(self.limit_ms.into()).max(row.slow),
            Rivals::None => age < HANDOVER_MAX.max(row.slow),
            Rivals::Wait {
                has_stream: true,
                some_without_line,
            } => {
                let belongs = row.more_holds < row.due(some_without_line) || age < HANDOVER_OPEN;
                belongs && age_then <= HANDOVER_MIN.max(row.slow)
            }
            Rivals::Wait {
                has_stream: false, ..
            } => age_then <= HANDOVER_POLLING.max(row.slow),
        };
        row.more_holds += usize::from(allows);
        row.hold_begun = now;
        self.is_used_up = !allows && matches!(rivals, Rivals::Unknown);
        allows
    }

    /// Whether the last row of hand-overs has used up its time, so that other processes have their chance now.
    pub(crate) fn must_yield(&self) -> bool {
        self.is_used_up
    }

    /// The pause before the next acquire request, in which other processes can acquire the lock, if the last row has used up
    /// its time; the next row may be longer then.
    pub(crate) fn take_yield(&mut self, moment: Moment) -> Option<Duration> {
        if !std::mem::take(&mut self.is_used_up) {
            return None;
        }
        self.grow();
        Some(moment.luck().millis(2..=5))
    }

    /// Shortens the budget, because another process holds the lock.
    pub(crate) fn shrink(&mut self) {
        self.limit_ms = in_millis(HANDOVER_MIN);
        self.short_rows = SHORT_ROWS;
    }

    /// Doubles the budget for the next row of hand-overs, unless another process was seen of late; it is shortened again if
    /// another process takes the lock.
    fn grow(&mut self) {
        if let Some(left) = self.short_rows.checked_sub(1) {
            self.short_rows = left;
            return;
        }
        self.limit_ms = self.limit_ms.saturating_mul(2).min(in_millis(HANDOVER_MAX));
    }
}

impl Row {
    /// The number of holds after the first one that belong to the row, from any callers: one for each caller that waited
    /// when it began, and some more. A program without a place in line has its chance only between two rows, so that rows are
    /// short beside one.
    fn due(&self, some_without_line: bool) -> usize {
        let more = if some_without_line {
            0
        } else {
            self.waiting / WAITERS_FOR_ONE_MORE
        };
        self.waiting + more
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
    fn row_length(budget: &mut HandoverBudget, request: Duration, rivals: Rivals) -> Duration {
        let begun = Instant::now();
        let mut now = begun;
        budget.begin_row(now, request, 0);
        while budget.allows_handover(now, rivals) {
            now += Duration::from_millis(1);
        }
        now - begun
    }

    #[test]
    fn the_budget_grows_while_no_other_process_wants_the_lock() {
        let (mut budget, fast) = (HandoverBudget::default(), Duration::ZERO);
        assert!(!budget.must_yield());
        assert_eq!(row_length(&mut budget, fast, Rivals::Unknown), HANDOVER_MIN);
        assert!(budget.must_yield());
        let pause = budget.take_yield(Moment::present()).unwrap();
        assert!((2..=5).contains(&pause.as_millis()), "{pause:?}");
        assert!(budget.take_yield(Moment::present()).is_none(), "it has yielded");
        assert_eq!(
            row_length(&mut budget, fast, Rivals::Unknown),
            HANDOVER_MIN * 2,
            "each row that has yielded makes the next one longer"
        );
        for _ in 0..10 {
            budget.grow();
        }
        assert_eq!(row_length(&mut budget, fast, Rivals::Unknown), HANDOVER_MAX);
        budget.shrink();
        for _ in 0..=SHORT_ROWS {
            assert_eq!(row_length(&mut budget, fast, Rivals::Unknown), HANDOVER_MIN);
            budget.grow();
        }
        assert_eq!(row_length(&mut budget, fast, Rivals::Unknown), HANDOVER_MIN * 2);
    }

    #[test]
    fn without_rivals_a_row_has_the_longest_time() {
        let mut budget = HandoverBudget::default();
        assert_eq!(
            row_length(&mut budget, Duration::ZERO, Rivals::None),
            HANDOVER_MAX
        );
        assert!(!budget.must_yield());
    }

    #[test]
    fn a_slow_server_makes_a_row_longer_up_to_a_limit() {
        let mut budget = HandoverBudget::default();
        let request = HANDOVER_MIN * 2;
        assert_eq!(
            row_length(&mut budget, request, Rivals::Unknown),
            request * HANDOVER_REQUESTS
        );
        assert_eq!(
            row_length(&mut budget, HANDOVER_MAX_SLOW, Rivals::Unknown),
            HANDOVER_MAX_SLOW
        );
    }

    /// The number of holds in a row for which others wait, with holds of 3 ms.
    fn holds_beside_rivals(waiting: usize, some_without_line: bool) -> usize {
        let (mut budget, mut now) = (HandoverBudget::default(), Instant::now());
        budget.begin_row(now, Duration::ZERO, waiting);
        let mut holds = 1;
        loop {
            now += Duration::from_millis(3);
            let rivals = Rivals::Wait {
                has_stream: true,
                some_without_line,
            };
            if !budget.allows_handover(now, rivals) {
                return holds;
            }
            holds += 1;
        }
    }

    #[test]
    fn beside_rivals_a_row_has_a_hold_for_each_caller_and_some_more_up_to_its_time() {
        let mut rows = Vec::new();
        for waiting in [1, 2, 3, 4, 31] {
            let (usual, short) = (
                holds_beside_rivals(waiting, false),
                holds_beside_rivals(waiting, true),
            );
            rows.push((usual, short));
        }
        assert_eq!(rows, [(2, 2), (3, 3), (5, 4), (6, 5), (6, 6)]);
    }

    /// There is no known rival for a set only if there is none for each of its names.
    #[test]
    fn one_rival_for_any_name_of_a_set_counts() {
        let wait = |has_stream, some_without_line| Rivals::Wait {
            has_stream,
            some_without_line,
        };
        let usual = wait(true, false);
        assert!(matches!(Rivals::None.or(Rivals::None), Rivals::None));
        assert!(matches!(Rivals::None.or(Rivals::Unknown), Rivals::Unknown));
        for other in [Rivals::None, Rivals::Unknown] {
            let either = [usual.or(other), other.or(usual)];
            assert!(either.iter().all(|rivals| matches!(
                rivals,
                Rivals::Wait {
                    has_stream: true,
                    some_without_line: false
                }
            )));
        }
        let polls = wait(false, true);
        let both = Rivals::Wait {
            has_stream: false,
            some_without_line: true,
        };
        assert_eq!(format!("{:?}", usual.or(polls)), format!("{both:?}"));
    }

    /// A call that acquires the locks of a set one by one may wait long for the last.
    #[test]
    fn a_row_that_begins_anew_has_its_whole_time() {
        let (mut budget, request) = (HandoverBudget::default(), HANDOVER_MIN * 2);
        let mut now = Instant::now();
        budget.begin_row(now, request, 0);
        now += HANDOVER_MAX_SLOW;
        assert!(!budget.allows_handover(now, Rivals::Unknown));
        budget.restart_row(now, 0);
        now += (request * HANDOVER_REQUESTS).saturating_sub(Duration::from_millis(1));
        assert!(budget.allows_handover(now, Rivals::Unknown));
    }
}

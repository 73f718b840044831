//! How many commands may be in flight: each takes a connection of the driver's pool, and streams and operators need some as well.

use super::event::Lane;

/// The number of commands in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    /// Of the lanes, in the order of [`Lane`].
    lanes: [usize; 4],
    /// Of claims and ends together; each has one in any case.
    pub(super) claims_and_ends: usize,
    /// Of rows that have failed together and go alone, in each lane.
    pub(super) alone: usize,
    /// Of all together.
    pub(super) total: usize,
}

/// What a change stream and an operator's query take of the pool.
const OTHERS: usize = 2;

impl Places {
    /// Those for a pool of this size. A small one has one command at a time for each lane, those that matter most first.
    pub(crate) fn of_pool(pool: usize) -> Self {
        if pool < 6 {
            return Self {
                lanes: [1; 4],
                claims_and_ends: 2,
                alone: 1,
                total: if Self::may_listen(pool) {
                    pool - 1
                } else {
                    pool.max(1)
                },
            };
        }
        let total = pool - OTHERS;
        Self {
            lanes: [4, 4, 2, 1],
            claims_and_ends: (total - 2).min(8),
            alone: 2,
            total,
        }
    }

    /// Whether the pool has a connection for a change stream.
    pub(crate) fn may_listen(pool: usize) -> bool {
        pool >= 3
    }

    pub(super) fn of(self, lane: Lane) -> usize {
        self.lanes[lane as usize]
    }
}

//! How many commands may be in flight: each takes a connection of the driver's pool, and streams and operators need some as well.

use super::event::Lane;

/// The number of commands in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    /// Of the lanes, in the order of [`Lane`].
    lanes: [usize; 4],
    /// Of claims and ends together; each has one in any case.
    claims_and_ends: usize,
    /// Of rows that have failed together and go alone, in each lane.
    pub(super) alone: usize,
    /// Of all together.
    total: usize,
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

    /// Whether one more command of this lane may be sent while these are in flight.
    pub(super) fn have_room(&self, lane: Lane, in_flight: [usize; 4], alone: usize) -> bool {
        let own = in_flight[lane as usize];
        let renewals = Lane::Renewals as usize;
        // Others leave the places of renewals free, unless there is only one for all.
        let reserved = match lane {
            Lane::Renewals => 0,
            _ if self.total == 1 => 0,
            _ => self.lanes[renewals].saturating_sub(in_flight[renewals]),
        };
        let all = in_flight.iter().sum::<usize>() + alone + reserved;
        let is_shared = matches!(lane, Lane::Claims | Lane::Ends);
        let shared = in_flight[Lane::Claims as usize] + in_flight[Lane::Ends as usize];
        let fits_together = !is_shared || own == 0 || shared < self.claims_and_ends;
        own < self.lanes[lane as usize] && fits_together && all < self.total
    }
}

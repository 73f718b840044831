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
    alone: usize,
    /// Of all together.
    total: usize,
}

/// What a change stream and an operator's query take of the pool.
const OTHERS: usize = 2;

impl Places {
    /// Those for a pool of this size. A small one has one command at a time for each lane, those that matter most first.
    pub(crate) fn of_pool(pool: usize) -> Self {
        let is_small = pool < 6;
        let others = if is_small {
            usize::from(Self::may_listen(pool))
        } else {
            OTHERS
        };
        let total = pool.saturating_sub(others).max(1);
        Self {
            lanes: if is_small { [1; 4] } else { [4, 4, 2, 1] },
            claims_and_ends: total.saturating_sub(2).clamp(2, 8),
            alone: if is_small { 1 } else { 2 },
            total,
        }
    }

    /// Whether the pool has a connection for a change stream.
    pub(crate) fn may_listen(pool: usize) -> bool {
        pool >= 3
    }

    /// Whether one more command of this lane may be sent while these are in flight: of each lane, and those that go alone. While leases
    /// are being renewed, the other lanes keep the server busy with one command each; and so does one that `is_single`.
    pub(super) fn have_room(
        &self,
        lane: Lane,
        (own, alone): ([usize; 4], [usize; 4]),
        is_single: bool,
    ) -> bool {
        let of = |lane: Lane| own[lane as usize];
        let is_busy = lane != Lane::Renewals && of(Lane::Renewals) > 0;
        let places = if is_single || is_busy {
            1
        } else {
            self.lanes[lane as usize]
        };
        let is_shared = matches!(lane, Lane::Claims | Lane::Ends) && of(lane) > 0;
        let has_share = !is_shared || of(Lane::Claims) + of(Lane::Ends) < self.claims_and_ends;
        of(lane) < places && has_share && self.have_connection(lane, (own, alone))
    }

    /// The same for a command that goes alone.
    pub(super) fn have_room_alone(&self, lane: Lane, (own, alone): ([usize; 4], [usize; 4])) -> bool {
        alone[lane as usize] < self.alone && self.have_connection(lane, (own, alone))
    }

    /// Whether a connection is free. Other lanes leave those of renewals free, unless there is only one for all.
    fn have_connection(&self, lane: Lane, (own, alone): ([usize; 4], [usize; 4])) -> bool {
        let all: usize = own.iter().chain(&alone).sum();
        let renewals = self.lanes[Lane::Renewals as usize].saturating_sub(own[Lane::Renewals as usize]);
        let is_reserved = lane != Lane::Renewals && self.total > 1;
        all + if is_reserved { renewals } else { 0 } < self.total
    }
}

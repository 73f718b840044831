//! How many commands may be in flight: each takes a connection of the driver's pool, and streams and operators need some as well.

use super::event::Lane;
use super::limits;

/// The number of commands in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    /// Of the lanes, in the order of [`Lane`].
    lanes: [usize; 4],
    /// Of rows that have failed together and go alone, in each lane.
    alone: usize,
    /// Of all together.
    total: usize,
}

/// The commands of each lane that have places, and those that go alone.
pub(super) type InFlight = ([usize; 4], [usize; 4]);

impl Places {
    /// Those for a pool of this size. A small one has one command at a time for each lane, those that matter most first.
    pub(crate) fn of_pool(pool: usize) -> Self {
        let others = if Self::may_listen(pool) {
            limits::OTHER_CONNECTIONS.min(pool - 2)
        } else {
            0
        };
        let total = pool.saturating_sub(others).max(1);
        let (lanes, alone) = match total {
            ..5 => ([1; 4], 1),
            5..10 => (limits::PLACES_OF_SMALL_POOL, 2),
            _ => (limits::PLACES, 2),
        };
        Self { lanes, alone, total }
    }

    /// Whether the pool has a connection for a change stream.
    pub(crate) fn may_listen(pool: usize) -> bool {
        pool >= 3
    }

    /// Whether one more command of this lane may be sent. While leases are being renewed, the other lanes keep the server busy with
    /// one command each; and so does one that `is_single`.
    pub(super) fn have_room(&self, lane: Lane, in_flight: InFlight, is_single: bool) -> bool {
        let (own, _) = in_flight;
        let is_busy = lane != Lane::Renewals && own[Lane::Renewals as usize] > 0;
        let places = if is_single || is_busy {
            1
        } else {
            self.lanes[lane as usize]
        };
        own[lane as usize] < places && self.have_connection(lane, in_flight)
    }

    /// The same for a command that goes alone.
    pub(super) fn have_room_alone(&self, lane: Lane, in_flight: InFlight) -> bool {
        let (_, alone) = in_flight;
        alone[lane as usize] < self.alone && self.have_connection(lane, in_flight)
    }

    /// Whether a connection is free. Other lanes leave those of renewals free, unless there is only one for all.
    fn have_connection(&self, lane: Lane, (own, alone): InFlight) -> bool {
        let all: usize = own.iter().chain(&alone).sum();
        let renewals = self.lanes[Lane::Renewals as usize].saturating_sub(own[Lane::Renewals as usize]);
        let is_reserved = lane != Lane::Renewals && self.total > 1;
        all + if is_reserved { renewals } else { 0 } < self.total
    }
}

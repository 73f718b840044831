//! The numbers of commands that may be in flight: each takes a connection of the driver's pool, and streams and
//! operators need some as well.

use super::event::Lane;
use super::limits;

/// The greatest numbers of commands in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    /// For each lane, in the order of [`Lane`].
    lanes: [usize; 4],
    /// For rows that have failed together and are sent alone, in each lane.
    alone: usize,
    /// For all commands together.
    total: usize,
}

/// The commands in flight of each lane, without and with rows that are sent alone.
pub(super) type InFlight = [[usize; 4]; 2];

impl Places {
    /// The numbers for a pool of this size. A small pool allows one command at a time for each lane, by priority.
    pub(crate) fn of_pool(pool: usize) -> Self {
        let others = limits::OTHER_CONNECTIONS.min(pool.saturating_sub(2));
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

    /// Whether one more command of this lane may be sent. `is_alone`: a row that is sent alone; `is_single`: one
    /// command at a time. While leases are being renewed, each other lane has one command at a time, which keeps the
    /// server busy. The other lanes leave the connections of renewals free, unless the pool has only one.
    pub(super) fn have_room(&self, lane: Lane, is_alone: bool, is_single: bool, in_flight: InFlight) -> bool {
        let [own, alone] = in_flight;
        let (renewals, is_other) = (own[Lane::Renewals as usize], lane != Lane::Renewals);
        let has_place = match lane as usize {
            lane if is_alone => alone[lane] < self.alone,
            lane if is_single || is_other && renewals > 0 => own[lane] == 0,
            lane => own[lane] < self.lanes[lane],
        };
        let reserved = match self.total {
            2.. if is_other => self.lanes[Lane::Renewals as usize].saturating_sub(renewals),
            _ => 0,
        };
        has_place && own.iter().chain(&alone).sum::<usize>() + reserved < self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: InFlight = [[0; 4]; 2];

    /// How many commands of this lane may be sent while these are in flight.
    fn room(pool: usize, lane: Lane, [is_alone, is_single]: [bool; 2], mut in_flight: InFlight) -> usize {
        let places = Places::of_pool(pool);
        let mut more = 0;
        while places.have_room(lane, is_alone, is_single, in_flight) {
            in_flight[usize::from(is_alone)][lane as usize] += 1;
            more += 1;
        }
        more
    }

    /// The numbers for each lane.
    fn rooms(pool: usize, how: [bool; 2], in_flight: InFlight) -> [usize; 4] {
        [Lane::Renewals, Lane::Ends, Lane::Claims, Lane::Looks].map(|lane| room(pool, lane, how, in_flight))
    }

    #[test]
    fn each_lane_has_room_for_some_commands() {
        let [plain, alone, single] = [[false, false], [true, false], [false, true]];
        assert_eq!(rooms(16, plain, NONE), [2, 4, 4, 1]);
        assert_eq!(rooms(16, alone, NONE), [2, 2, 2, 2]);
        assert_eq!(rooms(16, single, NONE), [1; 4]);
        assert_eq!(rooms(16, plain, [[0; 4], [2; 4]]), [2, 4, 4, 1]);
        assert_eq!(
            rooms(16, plain, [[1, 0, 0, 0], [0; 4]]),
            [1; 4],
            "leases are renewed"
        );
        assert_eq!(rooms(16, plain, [[1, 1, 1, 0], [0; 4]]), [1, 0, 0, 1]);
        for (pool, most) in [
            (12, [2, 4, 4, 1]),
            (11, [2, 2, 4, 1]),
            (7, [2, 2, 3, 1]),
            (6, [1; 4]),
        ] {
            assert_eq!(rooms(pool, plain, NONE), most, "a pool of {pool}");
        }
    }

    /// Other lanes leave connections for renewals, and all of them some for a stream and an operator.
    #[test]
    fn a_small_pool_has_room_for_renewals() {
        let plain = [false; 2];
        assert_eq!(rooms(8, plain, [[0, 2, 0, 0], [0; 4]]), [2, 0, 2, 1]);
        assert_eq!(rooms(8, plain, [[0, 2, 2, 0], [0; 4]]), [2, 0, 0, 0]);
        assert_eq!(rooms(8, plain, [[0, 0, 1, 0], [0, 0, 2, 0]]), [2, 1, 1, 1]);
        for pool in [3, 4] {
            assert_eq!(rooms(pool, plain, NONE), [1; 4]);
            assert_eq!(rooms(pool, plain, [[0, 0, 1, 0], [0; 4]]), [1, 0, 0, 0]);
        }
        for pool in [1, 2] {
            assert_eq!(room(pool, Lane::Claims, plain, NONE), 1);
        }
        assert_eq!(rooms(1, plain, [[0, 0, 1, 0], [0; 4]]), [0; 4]);
        assert!(!Places::may_listen(2) && Places::may_listen(3));
    }
}

//! What waits for a command: each lane has a queue of its own, in the order of arrival.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::event::Lane;
use super::places::Places;
use super::slab::Key;
use super::time::{Span, Time};
use crate::protocol::Order;

/// The lanes, those that matter most first.
pub(super) const BY_WEIGHT: [Lane; 4] = [Lane::Renewals, Lane::Ends, Lane::Claims, Lane::Looks];

#[derive(Debug, Clone, Hash)]
pub(super) struct Lanes {
    queues: [Queue; 4],
    places: Places,
}

/// The claims that wait in a lane. Their rows are made when they are sent.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Queue {
    /// Those that may go together.
    pub(super) waiting: VecDeque<Key>,
    /// Those that were in a command that has failed; each goes alone.
    pub(super) apart: VecDeque<Vec<Key>>,
    /// Those of sets; each set has a command of its own.
    pub(super) sets: VecDeque<Vec<Key>>,
    /// No look is sent before this time.
    pub(super) ready_at: Time,
    /// The server rejects commands: nothing is sent before this time, and then one command at a time.
    pub(super) resumes_at: Time,
    /// The present pause because of rejections; 0 is none.
    pub(super) pause: Span,
    in_flight: usize,
    alone_in_flight: usize,
}

/// A command on its way.
#[derive(Debug, Clone, Hash)]
pub(super) struct Flight {
    pub(super) key: Key,
    pub(super) lane: Lane,
    pub(super) claims: Vec<Key>,
    pub(super) sent: Time,
    /// Its limit at the server.
    pub(super) limit: Span,
    pub(super) order: Order,
    /// Whether it has one of the places for what goes alone.
    pub(super) is_alone: bool,
    pub(super) has_place: bool,
    pub(super) due: Option<Time>,
}

impl Lanes {
    pub(super) fn new(places: Places) -> Self {
        Self {
            queues: Default::default(),
            places,
        }
    }

    /// Whether one more command of this lane may be sent. While leases are being renewed, the other lanes keep the server busy with
    /// one command each; and a lane with a pause sends one at a time.
    pub(super) fn have_room(&self, lane: Lane) -> bool {
        let is_busy = lane != Lane::Renewals && self[Lane::Renewals].in_flight > 0;
        let is_single = is_busy || self[lane].pause > 0;
        let places = if is_single { 1 } else { self.places.of(lane) };
        let is_shared = matches!(lane, Lane::Claims | Lane::Ends) && self[lane].in_flight > 0;
        let shared = self[Lane::Claims].in_flight + self[Lane::Ends].in_flight;
        let has_share = !is_shared || shared < self.places.claims_and_ends;
        self[lane].in_flight < places && has_share && self.have_connection(lane)
    }

    /// Whether one more command may go alone.
    pub(super) fn have_room_alone(&self, lane: Lane) -> bool {
        self[lane].alone_in_flight < self.places.alone && self.have_connection(lane)
    }

    /// Whether a connection is free. Other lanes leave those of renewals free, unless there is only one for all.
    fn have_connection(&self, lane: Lane) -> bool {
        let in_flight = |queue: &Queue| queue.in_flight + queue.alone_in_flight;
        let all: usize = self.queues.iter().map(in_flight).sum();
        let is_reserved = lane != Lane::Renewals && self.places.total > 1;
        let renewals = self
            .places
            .of(Lane::Renewals)
            .saturating_sub(self[Lane::Renewals].in_flight);
        all + if is_reserved { renewals } else { 0 } < self.places.total
    }

    fn number(&mut self, lane: Lane, is_alone: bool) -> &mut usize {
        let queue = &mut self[lane];
        if is_alone {
            &mut queue.alone_in_flight
        } else {
            &mut queue.in_flight
        }
    }

    pub(super) fn take_place(&mut self, lane: Lane, is_alone: bool) {
        *self.number(lane, is_alone) += 1;
    }

    pub(super) fn leave_place(&mut self, lane: Lane, is_alone: bool) {
        *self.number(lane, is_alone) -= 1;
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.apart.is_empty() && self.sets.is_empty()
    }
}

impl Index<Lane> for Lanes {
    type Output = Queue;

    fn index(&self, lane: Lane) -> &Queue {
        &self.queues[lane as usize]
    }
}

impl IndexMut<Lane> for Lanes {
    fn index_mut(&mut self, lane: Lane) -> &mut Queue {
        &mut self.queues[lane as usize]
    }
}

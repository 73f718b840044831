//! What waits for a command: each lane has a queue of its own, in the order of arrival.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::event::Lane;
use super::slab::Key;
use super::time::{Span, Time};
use crate::protocol::Order;

/// The lanes, those that matter most first.
pub(super) const BY_WEIGHT: [Lane; 4] = [Lane::Renewals, Lane::Ends, Lane::Claims, Lane::Looks];

#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Lanes([Queue; 4]);

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

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.apart.is_empty() && self.sets.is_empty()
    }
}

impl Index<Lane> for Lanes {
    type Output = Queue;

    fn index(&self, lane: Lane) -> &Queue {
        &self.0[lane as usize]
    }
}

impl IndexMut<Lane> for Lanes {
    fn index_mut(&mut self, lane: Lane) -> &mut Queue {
        &mut self.0[lane as usize]
    }
}

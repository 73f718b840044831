//! Requests that wait to be sent: each lane has a queue of its own, in the order of arrival.

use std::collections::VecDeque;

use super::event::Lane;
use super::limits::PLACE;
use super::slab::Key;
use super::time::{Span, Time};
use crate::protocol::RowOrder;

/// The lanes by priority.
pub(super) const LANES: [Lane; 4] = [Lane::Renewals, Lane::Ends, Lane::Claims, Lane::Looks];

/// The claims that wait in a lane, or the rooms that wait for a look. Their rows are made when they are sent.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Queue {
    /// The claims that may share a command.
    pub(super) waiting: VecDeque<Key>,
    /// Those with a command of their own: what was in one that has failed, and sets, whose commands stop at a miss.
    pub(super) apart: VecDeque<(RowOrder, Vec<Key>)>,
    /// No look is sent before this time.
    pub(super) ready_at: Time,
    /// The server rejects commands: nothing is sent before this time, and then one command at a time.
    pub(super) resumes_at: Time,
    /// The present pause because of rejections; 0 is none.
    pub(super) pause: Span,
}

/// A command in flight.
#[derive(Debug, Clone, Hash)]
pub(super) struct Flight {
    /// The number of commands that were sent until then, with this one.
    pub(super) number: u64,
    pub(super) lane: Lane,
    /// The claims of its rows, or the rooms that it looks at.
    pub(super) keys: Vec<Key>,
    pub(super) sent: Time,
    /// Its time limit at the server.
    pub(super) limit: Span,
    pub(super) order: RowOrder,
    /// Whether it is counted with the commands of claims that are sent alone.
    pub(super) is_alone: bool,
}

impl Flight {
    /// When it leaves its place to others. Its end comes in any case: the engine ends it after its limit.
    pub(super) fn leaves_at(&self) -> Time {
        self.sent + PLACE
    }
}

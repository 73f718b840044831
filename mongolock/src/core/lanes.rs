//! Requests that wait to be sent: each lane has a queue of its own, in the order of arrival.

use std::collections::VecDeque;

use super::event::Lane;
use super::limits::{LIMIT, LIMIT_TOGETHER, LIMITS, PLACE};
use super::slab::Key;
use super::time::{Span, Time};
use crate::protocol::Order;

/// The lanes by priority.
pub(super) const LANES: [Lane; 4] = [Lane::Renewals, Lane::Ends, Lane::Claims, Lane::Looks];

/// The claims that wait in a lane. Their rows are made when they are sent.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Queue {
    /// The claims that may share a command.
    pub(super) waiting: VecDeque<Key>,
    /// Those with a command of their own: what was in one that has failed, and sets, whose commands stop at a miss.
    pub(super) apart: VecDeque<(Order, Vec<Key>)>,
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
    pub(super) key: Key,
    pub(super) lane: Lane,
    pub(super) claims: Vec<Key>,
    pub(super) sent: Time,
    /// Its time limit at the server.
    pub(super) limit: Span,
    pub(super) order: Order,
    /// Whether it is counted with the commands of claims that are sent alone.
    pub(super) is_alone: bool,
}

impl Flight {
    pub(super) fn new(now: Time, lane: Lane, claims: Vec<Key>, order: Order, is_alone: bool) -> Self {
        // The time limit of renewals depends on their leases.
        let is_together = claims.len() > 1 && matches!(lane, Lane::Claims | Lane::Ends);
        let limit = if is_together { LIMIT_TOGETHER } else { LIMIT };
        Self {
            key: Key::NONE,
            lane,
            claims,
            sent: now,
            limit: limit.min(LIMITS[lane as usize]),
            order,
            is_alone,
        }
    }

    /// When it leaves its place to others. Its end comes in any case: the engine ends it after its limit.
    pub(super) fn leaves_at(&self) -> Time {
        self.sent + PLACE
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.apart.is_empty()
    }
}

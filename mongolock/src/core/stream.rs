//! The change stream: for which locks it is open, and which it reports.

use super::slab::Key;
use super::time::Time;

/// The filters of the change stream have numbers. A lock has the number of the first filter that reports it.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Stream {
    /// Whether there may be one.
    pub(super) is_possible: bool,
    /// It is not opened before this time.
    pub(super) retry_at: Time,
    /// The last filter, the one whose stream is being opened, and the one whose stream is open since then.
    pub(super) number: u32,
    pub(super) opening: Option<u32>,
    pub(super) open: Option<u32>,
    pub(super) opened_at: Time,
    /// From this filter on all locks are reported.
    pub(super) all_from: Option<u32>,
    /// The rooms that listen, with some that are gone; and how many there are.
    pub(super) listeners: Vec<Key>,
    pub(super) listening: usize,
    /// Whether a new filter is to be opened.
    pub(super) is_wanting: bool,
    pub(super) due: Option<Time>,
}

impl Stream {
    pub(super) fn new(is_possible: bool, now: Time) -> Self {
        let retry_at = if is_possible { now } else { Time::NEVER };
        Self {
            is_possible,
            retry_at,
            ..Self::default()
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the open stream reports a lock that has this filter.
    pub(super) fn reports(&self, filter: Option<u32>) -> bool {
        filter.is_some_and(|filter| self.open.is_some_and(|open| open >= filter))
    }

    /// Whether it has done so since then. What was asked before it was open does not say what it has reported.
    pub(super) fn reports_since(&self, filter: Option<u32>, since: Time) -> bool {
        self.reports(filter) && since > self.opened_at
    }
}

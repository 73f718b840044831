//! The state of the change stream: the locks for which it is open, and those that it reports.

use super::slab::Key;
use super::time::Time;

/// The filters of the change stream have numbers. A lock has the number of the first filter that reports it.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Stream {
    /// Whether a change stream is possible.
    pub(super) is_possible: bool,
    /// It is not opened before this time.
    pub(super) retry_at: Time,
    /// The last filter, the one whose stream is being opened, and the one whose stream is open since then.
    pub(super) number: u32,
    pub(super) opening: Option<u32>,
    pub(super) open: Option<u32>,
    pub(super) opened_at: Time,
    /// From this filter number on all locks are reported.
    pub(super) all_from: Option<u32>,
    /// The rooms that listen, including some that were removed, and the number of those that exist.
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

    /// Whether the open stream has reported such a lock since this time. The reply to a command that was sent before
    /// the stream was open does not include what the stream has reported.
    pub(super) fn reports_since(&self, filter: Option<u32>, since: Time) -> bool {
        self.reports(filter) && since > self.opened_at
    }
}

//! Which locks the stream reports: the awaited ones, as long as they are few.
//!
//! The server pays for each release and each stream that it has to match it with, and it pays less where the names stand
//! in the stream's filter. Another filter needs another stream, so it is changed seldom; locks that are not in it yet are
//! looked at without it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::waiters::Waiters;
use crate::store::StreamFilter;
use crate::timing::{FILTER_FEW, FILTER_KEEPS, FILTER_MOST, FILTER_SWITCH};

/// The filter of the stream, and the names that left it a moment ago.
pub(super) struct Filter {
    /// The filter that the stream has at present.
    present: StreamFilter,
    /// The time from which the filter may be changed.
    next_switch: Instant,
    /// The names whose waiters have left within [`FILTER_KEEPS`], with the times: they are often awaited again.
    left: VecDeque<(Instant, Arc<str>)>,
}

impl Filter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            present: StreamFilter::Names(Arc::default()),
            next_switch: now,
            left: VecDeque::new(),
        }
    }

    pub(super) fn present(&self) -> &StreamFilter {
        &self.present
    }

    /// Notes the filter of the stream, and returns the one that it had before.
    pub(super) fn set(&mut self, filter: StreamFilter) -> StreamFilter {
        std::mem::replace(&mut self.present, filter)
    }

    /// Notes that a change of the filter begins. The next one comes later, because each costs the server a new stream.
    pub(super) fn begin_switch(&mut self, now: Instant) {
        self.next_switch = now + FILTER_SWITCH;
    }

    /// Notes that the waiter for a lock has left.
    pub(super) fn leave(&mut self, now: Instant, name: &Arc<str>) {
        self.forget_left(now);
        self.left.retain(|(_, left)| left != name);
        // More of them than a filter can have need not be remembered.
        if self.left.len() < FILTER_MOST {
            self.left.push_back((now, Arc::clone(name)));
        }
    }

    /// The filter of a stream that is opened now.
    pub(super) fn at_opening(
        &mut self,
        now: Instant,
        waiters: &Waiters,
        in_line: &[Arc<str>],
    ) -> StreamFilter {
        if waiters.len() > FILTER_MOST {
            return StreamFilter::All;
        }
        let names = self.names(now, waiters, in_line);
        if names.len() > FILTER_MOST {
            StreamFilter::All
        } else {
            StreamFilter::Names(Arc::new(names))
        }
    }

    /// The filter that the stream shall have, if it is another one and may be changed at this time.
    pub(super) fn due_switch(
        &mut self,
        now: Instant,
        waiters: &Waiters,
        in_line: impl FnOnce() -> Vec<Arc<str>>,
    ) -> Option<StreamFilter> {
        if self.next_switch > now {
            return None;
        }
        match &self.present {
            StreamFilter::All if waiters.len() >= FILTER_FEW => None,
            StreamFilter::All => {
                let names = self.names(now, waiters, &in_line());
                (names.len() < FILTER_FEW).then(|| StreamFilter::Names(Arc::new(names)))
            }
            StreamFilter::Names(present) if waiters.names().all(|name| present.contains(name)) => None,
            StreamFilter::Names(_) => Some(self.at_opening(now, waiters, &in_line())),
        }
    }

    /// The names that are awaited, or were within [`FILTER_KEEPS`], and those in whose lines this provider stands.
    fn names(&mut self, now: Instant, waiters: &Waiters, in_line: &[Arc<str>]) -> BTreeSet<Arc<str>> {
        self.forget_left(now);
        let left = self.left.iter().map(|(_, name)| name);
        waiters
            .names()
            .chain(left)
            .cloned()
            .chain(in_line.iter().cloned())
            .collect()
    }

    fn forget_left(&mut self, now: Instant) {
        while self.left.front().is_some_and(|(at, _)| now - *at >= FILTER_KEEPS) {
            self.left.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::waiters::tests::waiters;
    use super::*;

    fn has_names(filter: Option<&StreamFilter>) -> Option<usize> {
        match filter {
            Some(StreamFilter::Names(names)) => Some(names.len()),
            Some(StreamFilter::All) | None => None,
        }
    }

    #[test]
    fn names_leave_the_filter_above_one_number_and_return_below_another() {
        let now = Instant::now();
        let mut filter = Filter::new(now);
        assert_eq!(
            has_names(Some(&filter.at_opening(now, &waiters(FILTER_MOST), &[]))),
            Some(FILTER_MOST)
        );
        assert_eq!(
            filter.at_opening(now, &waiters(FILTER_MOST + 1), &[]),
            StreamFilter::All
        );
        filter.set(StreamFilter::All);
        assert_eq!(filter.due_switch(now, &waiters(FILTER_MOST), Vec::new), None);
        assert_eq!(filter.due_switch(now, &waiters(FILTER_FEW), Vec::new), None);
        let few = filter.due_switch(now, &waiters(FILTER_FEW - 1), Vec::new);
        assert_eq!(has_names(few.as_ref()), Some(FILTER_FEW - 1));
        filter.set(few.unwrap());
        assert_eq!(
            filter.due_switch(now, &waiters(FILTER_MOST + 1), Vec::new),
            Some(StreamFilter::All)
        );
    }

    #[test]
    fn a_change_waits_for_the_one_before_it() {
        let mut now = Instant::now();
        let mut filter = Filter::new(now);
        assert!(
            filter.due_switch(now, &waiters(1), Vec::new).is_some(),
            "the first one is made at once"
        );
        filter.begin_switch(now);
        assert!(filter.due_switch(now, &waiters(1), Vec::new).is_none());
        now += FILTER_SWITCH;
        assert!(filter.due_switch(now, &waiters(1), Vec::new).is_some());
    }

    #[test]
    fn a_name_stays_for_a_moment_after_its_waiter() {
        let mut now = Instant::now();
        let mut filter = Filter::new(now);
        filter.leave(now, &Arc::from("left"));
        assert_eq!(
            has_names(Some(&filter.at_opening(now, &waiters(2), &[]))),
            Some(3)
        );
        now += FILTER_KEEPS;
        assert_eq!(
            has_names(Some(&filter.at_opening(now, &waiters(2), &[]))),
            Some(2)
        );
    }
}

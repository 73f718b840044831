//! The change stream: when it is opened, for which locks, and which it reports.

use std::collections::BTreeSet;

use super::event::Effect;
use super::limits;
use super::slab::Key;
use super::state::{Core, Due, Phase};
use super::time::{Time, span};
use crate::timing::FAILED_PAUSE;

/// The change stream of this process, and the locks for which it is open. Its filters have numbers: a lock has the
/// number of the first filter that reports it.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Stream {
    /// Whether a change stream is possible.
    pub(super) is_possible: bool,
    /// It is not opened before this time.
    pub(super) retry_at: Time,
    /// The number of the last filter.
    pub(super) number: u32,
    /// The filter whose stream is being opened.
    pub(super) opening: Option<u32>,
    /// The filter of the open stream.
    pub(super) open: Option<u32>,
    /// The time at which that stream was opened.
    pub(super) opened_at: Time,
    /// From this filter number on all locks are reported.
    pub(super) all_from: Option<u32>,
    /// The rooms that listen.
    pub(super) listeners: BTreeSet<Key>,
    /// Whether a new filter is to be opened.
    pub(super) is_wanting: bool,
    pub(super) due: Option<Time>,
}

impl Stream {
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

impl<C: Clone> Core<C> {
    /// The change stream shall report this lock, if calls wait for it and two replies in a row have said that it is held.
    pub(super) fn listen(&mut self, now: Time, key: Key) {
        let (room, stream) = (&mut self.rooms[key], &mut self.stream);
        let waits = !room.queue.is_empty() && room.misses >= 2 && room.filter.is_none();
        if !waits || !stream.is_possible && stream.retry_at > now {
            return;
        }
        stream.listeners.insert(key);
        // The next filter has it, unless the present one has all locks.
        room.filter = Some(stream.all_from.unwrap_or(stream.number + 1));
        if !stream.reports(room.filter) {
            stream.is_wanting = true;
            self.open_stream(now);
        }
    }

    /// Opens a stream with a new filter, if one is wanted and none is being opened.
    pub(super) fn open_stream(&mut self, now: Time) {
        let (rooms, stream) = (&self.rooms, &mut self.stream);
        let may_open = stream.opening.is_none() && stream.retry_at <= now && self.phase != Phase::Closed;
        if !stream.is_wanting || !may_open {
            return;
        }
        stream.is_wanting = false;
        stream.number += 1;
        let number = stream.number;
        stream.opening = Some(number);
        let is_of_all = stream.listeners.len() > limits::SINGLE_LOCKS;
        stream.all_from = is_of_all.then_some(number);
        let name_of = |key: &Key| rooms[*key].name.clone();
        let names = (!is_of_all).then(|| stream.listeners.iter().map(name_of).collect());
        self.effects.push(Effect::Watch(number, names));
    }

    /// Whether the events of the stream with this number are needed: it is open, or being opened.
    pub(crate) fn reads_stream(&self, number: u32) -> bool {
        [self.stream.opening, self.stream.open].contains(&Some(number))
    }

    /// A room whose command was in flight asks once more, by its own pause.
    pub(super) fn opened(&mut self, now: Time, number: u32) {
        let stream = &mut self.stream;
        if stream.opening == Some(number) {
            (stream.open, stream.opening, stream.opened_at) = (stream.opening, None, now);
            stream.is_possible = true;
            self.open_stream(now);
        }
    }

    /// Each room asks when its own pause is over.
    pub(super) fn closed(&mut self, now: Time, number: u32, is_lasting: bool) {
        if !self.reads_stream(number) {
            return;
        }
        let pause = if is_lasting {
            limits::STREAM_UNAVAILABLE
        } else {
            span(FAILED_PAUSE)
        };
        let stream = &mut self.stream;
        stream.is_possible = !is_lasting;
        (stream.open, stream.opening, stream.all_from) = (None, None, None);
        (stream.is_wanting, stream.retry_at) = (!stream.listeners.is_empty(), now + pause);
        self.arm(Due::Stream, now + pause);
    }

    /// A room is gone that has listened. A stream that reports all locks costs the server more than one for those that are left.
    pub(super) fn listens_no_longer(&mut self, now: Time, key: Key) {
        let stream = &mut self.stream;
        stream.listeners.remove(&key);
        if stream.listeners.is_empty() {
            (stream.open, stream.opening, stream.all_from) = (None, None, None);
            stream.is_wanting = false;
        } else if stream.all_from.is_some() && stream.listeners.len() < limits::SINGLE_LOCKS / 4 * 3 {
            stream.is_wanting = true;
            self.open_stream(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Conf, Places};
    use super::*;

    #[test]
    fn a_stream_is_read_until_the_next_one_is_open_and_its_end_then_means_nothing() {
        let conf = Conf {
            mark: [7; 6],
            owner: Arc::from("anna"),
            may_listen: true,
            margin: 0,
            retry: (0, 0),
            places: Places::of_pool(16),
        };
        let mut core: Core<u32> = Core::new(conf, Time(0));
        core.stream.opening = Some(1);
        core.opened(Time(1), 1);
        core.stream.opening = Some(2);
        assert!(core.reads_stream(1) && core.reads_stream(2));
        core.opened(Time(2), 2);
        core.closed(Time(3), 1, true);
        assert!(!core.reads_stream(1) && core.reads_stream(2) && core.stream.is_possible);
        core.closed(Time(4), 2, false);
        assert!(!core.reads_stream(2));
    }
}

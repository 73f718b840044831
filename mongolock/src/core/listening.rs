//! When the change stream is opened, and for which locks.

use super::event::Effect;
use super::limits;
use super::slab::Key;
use super::state::{Core, Due};
use super::time::Time;

impl<C: Clone> Core<C> {
    /// Makes the change stream report this lock.
    pub(super) fn listen(&mut self, now: Time, key: Key) {
        let (room, stream) = (&mut self.rooms[key], &mut self.stream);
        if room.filter.is_some() || !stream.is_possible && stream.retry_at > now {
            return;
        }
        stream.listening += 1;
        stream.listeners.push(key);
        // The next filter will have the lock, unless the present filter has all locks.
        room.filter = Some(stream.all_from.unwrap_or(stream.number + 1));
        if !stream.reports(room.filter) {
            stream.is_wanting = true;
            self.open_stream(now);
        }
    }

    /// Opens a stream with a new filter, if one is wanted and none is being opened.
    pub(super) fn open_stream(&mut self, now: Time) {
        let (rooms, stream) = (&self.rooms, &mut self.stream);
        if stream.opening.is_some() || !stream.is_wanting || stream.retry_at > now {
            return;
        }
        stream.is_wanting = false;
        stream.number += 1;
        let number = stream.number;
        stream.opening = Some(number);
        stream.listeners.retain(|key| rooms.get(*key).is_some());
        let is_of_all = stream.listeners.len() > limits::FILTER_MOST;
        stream.all_from = is_of_all.then_some(number);
        let name_of = |key: &Key| rooms.get(*key).map(|room| room.name.clone());
        let names = (!is_of_all).then(|| stream.listeners.iter().filter_map(name_of).collect());
        self.effects.push(Effect::Watch(number, names));
    }

    /// A room whose command was in flight asks once more after its own pause.
    pub(super) fn opened(&mut self, now: Time, number: u32) {
        let stream = &mut self.stream;
        if stream.opening == Some(number) {
            (stream.open, stream.opening, stream.opened_at) = (stream.opening, None, now);
            stream.is_possible = true;
            self.open_stream(now);
        }
    }

    pub(super) fn closed(&mut self, now: Time, is_lasting: bool) {
        let pause = if is_lasting {
            limits::STREAM_UNAVAILABLE
        } else {
            limits::STREAM_RETRY
        };
        let stream = &mut self.stream;
        stream.is_possible = !is_lasting;
        (stream.open, stream.opening, stream.all_from) = (None, None, None);
        (stream.is_wanting, stream.retry_at) = (stream.listening > 0, now + pause);
        self.arm(Due::Stream, now + pause);
        // If there are many rooms, they do not ask now: each one asks anyway when its pause is over.
        if self.stream.listening > limits::FILTER_MOST {
            return;
        }
        for key in self.stream.listeners.clone() {
            if let Some(room) = self.rooms.get_mut(key) {
                room.pause_until = room.pause_until.min(now + limits::STREAM_CLOSED_PAUSE);
                self.touch(now, key);
            }
        }
    }

    /// A room that has listened was removed. A stream of all locks costs the server more than one of the remaining
    /// locks.
    pub(super) fn listens_no_longer(&mut self, now: Time) {
        let stream = &mut self.stream;
        stream.listening -= 1;
        if stream.listening == 0 {
            (stream.open, stream.opening, stream.all_from) = (None, None, None);
            stream.listeners.clear();
            stream.is_wanting = false;
            self.effects.push(Effect::Unwatch);
        } else if stream.all_from.is_some() && stream.listening < limits::FILTER_FEW {
            stream.is_wanting = true;
            self.open_stream(now);
        }
    }
}

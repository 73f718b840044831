//! Which turns the events of locks make: who had a lock from when to when. No input or output.
//!
//! The events are read backwards, because an event that ends a turn does not name the holder, and because people ask for the
//! latest turns first. What is known of a turn whose beginning is not reached yet waits in [`Turns::open`].

mod end;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;

use mongodb::bson::DateTime;

pub(crate) use self::end::End;

/// A lock, or a permit of a semaphore.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) permit: Option<u32>,
}

/// What is known of a hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) owner: Option<String>,
    pub(crate) lock_id: Option<String>,
    /// `None` for a permit as well.
    pub(crate) token: Option<i64>,
    pub(crate) acquired_at: Option<DateTime>,
}

impl Hold {
    /// Takes over what only the other one knows.
    fn complete(&mut self, other: Self) {
        self.owner = self.owner.take().or(other.owner);
        self.lock_id = self.lock_id.take().or(other.lock_id);
        self.token = self.token.or(other.token);
        self.acquired_at = self.acquired_at.or(other.acquired_at);
    }
}

/// What an event, or the present document, says of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The present document, and how its turn has ended if that is known.
    Present(Option<End>),
    Acquired,
    Renewed,
    /// The lease was detached or resumed: the turn goes on.
    Changed,
    Ended(End),
    /// All documents were deleted with their collection.
    AllDeleted,
    /// The events since this time are missing, of all locks.
    Gap(DateTime),
    /// The same in the history, which has the ends of the turns before it.
    RecordedGap(DateTime),
}

/// An event, or the present document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) what: What,
    pub(crate) at: DateTime,
    pub(crate) key: Key,
    pub(crate) hold: Hold,
    /// The end of the lease.
    pub(crate) expires_at: Option<DateTime>,
}

impl Event {
    /// The events between these times are missing.
    pub(crate) fn gap(since: DateTime, at: DateTime) -> Self {
        Self {
            what: What::Gap(since),
            at,
            key: Key::default(),
            hold: Hold::default(),
            expires_at: None,
        }
    }
}

/// The time in which a holder had a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) key: Key,
    /// What is known of the hold; its beginning is that of the turn.
    pub(crate) hold: Hold,
    pub(crate) to: Option<DateTime>,
    pub(crate) end: End,
    /// When the lease was renewed, the latest first.
    pub(crate) renewals: Vec<DateTime>,
    /// Whether the event of its acquisition was read, and so all its renewals.
    is_whole: bool,
    /// Whether the last lease of the turn was read: an earlier one does not tell its end.
    is_lease_read: bool,
}

impl Turn {
    /// Whether a part of it lies between these times, as far as is known.
    pub(crate) fn is_within(&self, since: DateTime, until: DateTime) -> bool {
        let from = self.hold.acquired_at;
        // A turn with an unknown end was on when it was seen last.
        let seen = self.renewals.first().copied().or(from);
        let to = self.to.or(seen.filter(|_| self.end != End::Held));
        from.is_none_or(|from| from <= until) && to.is_none_or(|to| to >= since)
    }

    fn is_incomplete(&self) -> bool {
        self.hold.acquired_at.is_none() || self.to.is_some() && self.hold.owner.is_none()
    }

    /// The longest time between two renewals, in milliseconds. The end of the turn counts as one, and so does the acquisition,
    /// unless the renewals after it are not known.
    pub(crate) fn longest_pause(&self) -> Option<i64> {
        let acquired = self.hold.acquired_at.as_ref().filter(|_| self.is_whole);
        let times = self.to.iter().chain(&self.renewals).chain(acquired);
        let times: Vec<i64> = times.map(|time| time.timestamp_millis()).collect();
        times.windows(2).map(|pair| pair[0].saturating_sub(pair[1])).max()
    }
}

/// What the log has a line for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Turn(Turn),
    /// Nothing is known between these times.
    Gap(DateTime, DateTime),
}

/// A turn whose beginning is not reached yet.
#[derive(Debug)]
struct Open {
    turn: Turn,
    /// Whether an event or the document has shown that there was such a turn. Before an acquisition there may have been none.
    is_sure: bool,
}

/// The turns that are not complete yet.
#[derive(Debug)]
pub(crate) struct Turns {
    open: HashMap<Key, Open>,
    /// Whether the events have the renewals, so that the ends of leases are known.
    has_renewals: bool,
    /// A turn that has begun since is on if no later event ends it. An earlier one would have left its document.
    read_at: DateTime,
    /// How and when the turns before a gap, or before the deletion of all documents, have ended if no event tells it.
    ended_by: Option<(End, DateTime)>,
    /// Whether no other turns are looked for than those that are open.
    only_missing: bool,
    /// Turns that are complete, but that others which are not may belong before; the latest first.
    kept: VecDeque<Turn>,
}

impl Turns {
    /// Begins with the present documents, which were read since this time.
    pub(crate) fn new(
        present: impl IntoIterator<Item = Event>,
        read_at: DateTime,
        has_renewals: bool,
    ) -> Self {
        let mut turns = Self {
            open: HashMap::new(),
            has_renewals,
            read_at,
            ended_by: None,
            only_missing: false,
            kept: VecDeque::new(),
        };
        for event in present {
            turns.add(event, &mut Vec::new());
        }
        turns
    }

    /// Takes over the events of a time before that of all earlier calls, in their order, and returns the turns that have begun
    /// in it, the latest first.
    pub(crate) fn step(&mut self, events: impl DoubleEndedIterator<Item = Event>) -> Vec<Found> {
        let mut found = Vec::new();
        for event in events.rev() {
            self.add(event, &mut found);
        }
        self.with_kept(found)
    }

    /// Ends the search for turns: the steps that follow only look for the beginnings and the holders of those that were found
    /// without them. The others are kept until what has begun later is known.
    pub(crate) fn only_missing(&mut self) {
        self.only_missing = true;
        let missing = self
            .open
            .extract_if(|_, open| open.is_sure && open.turn.is_incomplete());
        let missing = missing.collect();
        self.kept = self.take().into();
        self.open = missing;
    }

    /// The names of the locks with such turns.
    pub(crate) fn missing(&self) -> BTreeSet<&str> {
        self.open.keys().map(|key| &*key.name).collect()
    }

    /// All events since this time were added: the turns that were kept and have begun since, the latest first.
    pub(crate) fn since(&mut self, reached: DateTime) -> Vec<Found> {
        let all = self.kept.iter();
        let count = all
            .take_while(|turn| turn.hold.acquired_at >= Some(reached))
            .count();
        self.kept.drain(..count).map(Found::Turn).collect()
    }

    /// What was found, with the turns before each that were kept and have begun later.
    fn with_kept(&mut self, found: Vec<Found>) -> Vec<Found> {
        let mut all = Vec::with_capacity(found.len());
        for found in found {
            if let Found::Turn(turn) = &found
                && let Some(from) = turn.hold.acquired_at
            {
                all.extend(self.since(from));
            }
            all.push(found);
        }
        all
    }

    /// Whether such turns are left.
    pub(crate) fn are_missing(&self) -> bool {
        self.only_missing && !self.open.is_empty()
    }

    /// The turns that have begun before all events, the latest first.
    pub(crate) fn rest(&mut self) -> Vec<Found> {
        self.take().into_iter().map(Found::Turn).collect()
    }

    /// Takes the turns that there were, complete or not, the latest first.
    fn take(&mut self) -> Vec<Turn> {
        let open = mem::take(&mut self.open).into_values();
        let open = open.filter(|open| open.is_sure).map(|open| open.turn);
        let mut turns: Vec<Turn> = open.chain(mem::take(&mut self.kept)).collect();
        let order = |turn: &Turn| (turn.hold.acquired_at, turn.to, turn.key.clone());
        turns.sort_by_cached_key(|turn| Reverse(order(turn)));
        turns
    }

    fn add(&mut self, event: Event, found: &mut Vec<Found>) {
        if let What::Gap(since) = event.what {
            found.append(&mut self.rest());
            found.push(Found::Gap(since, event.at));
            self.ended_by = Some((End::Unknown, since));
            return;
        }
        if event.what == What::AllDeleted {
            // What each of them has ended by may be an event of its own, at the same time.
            let ended_now = self.open.extract_if(|_, open| open.turn.to == Some(event.at));
            let ended_now = ended_now.collect();
            found.append(&mut self.rest());
            self.open = ended_now;
            self.ended_by = Some((End::ExpiredBy, event.at));
            return;
        }
        if let What::RecordedGap(since) = event.what {
            found.push(Found::Gap(since, event.at));
            return;
        }
        let later = self.open.remove(&event.key);
        if self.only_missing && later.is_none() {
            return;
        }
        match event.what {
            What::Acquired => self.acquired(event, later, found),
            What::Ended(end) => self.ended(event, end, later, found),
            _ => self.seen(event, later),
        }
    }

    fn acquired(&mut self, event: Event, later: Option<Open>, found: &mut Vec<Found>) {
        let mut open = later.unwrap_or_else(|| self.unended(&event));
        // An acquisition in the same millisecond as the one before does not change the field.
        let from = event.hold.acquired_at.or(open.turn.hold.acquired_at);
        let from = from.unwrap_or(event.at);
        if !open.is_sure && open.turn.end == End::ExpiredBy && open.turn.to == Some(from) {
            // The history has the acquisition that was read last as well: it began in one second, and its event is of the next.
            self.open.insert(event.key, open);
            return;
        }
        let mut before = Open::new(&event.key);
        // The document was read before this event, and shows the turn before.
        if open.turn.hold.acquired_at.is_some_and(|known| known < from) {
            before = mem::replace(&mut open, self.unended(&event));
        }
        self.end_of_lease(&mut open.turn, event.expires_at);
        open.turn.hold.complete(event.hold);
        open.turn.hold.acquired_at = Some(from);
        open.turn.is_whole = true;
        found.push(Found::Turn(open.turn));
        (before.turn.end, before.turn.to) = (End::ExpiredBy, Some(from));
        if !self.only_missing {
            self.open.insert(event.key, before);
        }
    }

    /// An end whose beginning was not found is dropped if another one came before it: a mark of finished work was cleared then.
    fn ended(&mut self, event: Event, end: End, later: Option<Open>, found: &mut Vec<Found>) {
        let mut open = Open::new(&event.key);
        open.is_sure = end != End::ExpiredBy || event.hold.lock_id.is_some();
        open.turn.end = end;
        open.turn.to = Some(match end {
            End::Expired => event.expires_at.unwrap_or(event.at),
            _ => event.at,
        });
        open.turn.hold = event.hold;
        if let Some(later) = later {
            match later.turn.hold.acquired_at {
                Some(from) if from <= event.at => open.turn.hold.complete(later.turn.hold),
                Some(_) if later.is_sure => found.push(Found::Turn(later.turn)),
                _ => {}
            }
        }
        self.open.insert(event.key, open);
    }

    /// The turn is on at the time of the event, or has left its document.
    fn seen(&mut self, event: Event, later: Option<Open>) {
        let mut open = later.unwrap_or_else(|| self.unended(&event));
        match event.what {
            What::Present(None) => open.turn.end = End::Unknown,
            What::Present(Some(End::Held)) | What::Changed => open.is_sure = true,
            What::Present(Some(end)) => {
                (open.turn.end, open.turn.to) = (end, event.expires_at);
                open.is_sure = true;
            }
            _ => open.is_sure = true,
        }
        if matches!(event.what, What::Renewed | What::Changed) {
            self.end_of_lease(&mut open.turn, event.expires_at);
        }
        if event.what == What::Renewed {
            open.turn.renewals.push(event.at);
        }
        open.turn.hold.complete(event.hold);
        self.open.insert(event.key, open);
    }

    /// The end of a lease that was not renewed any more.
    fn end_of_lease(&self, turn: &mut Turn, expires_at: Option<DateTime>) {
        let Some(end) = expires_at.filter(|_| self.has_renewals) else {
            return;
        };
        let is_last = !mem::replace(&mut turn.is_lease_read, true);
        // A lease that was longer has ended with its document.
        let is_whole = turn.to.is_none_or(|to| end <= to);
        if is_last && is_whole && turn.end == End::ExpiredBy {
            (turn.end, turn.to) = (End::Expired, Some(end));
        }
    }

    /// A turn whose end no event has told.
    fn unended(&self, event: &Event) -> Open {
        let mut open = Open::new(&event.key);
        let is_present = matches!(event.what, What::Present(_)) || event.at >= self.read_at;
        if let Some((end, at)) = self.ended_by {
            (open.turn.end, open.turn.to) = (end, Some(at));
        } else if is_present {
            open.turn.end = End::Held;
        }
        open
    }
}

impl Open {
    /// Nothing is known of it.
    fn new(key: &Key) -> Self {
        let turn = Turn {
            key: key.clone(),
            hold: Hold::default(),
            to: None,
            end: End::Unknown,
            renewals: Vec::new(),
            is_whole: false,
            is_lease_read: false,
        };
        let is_sure = false;
        Self { turn, is_sure }
    }
}

#[cfg(test)]
mod tests;

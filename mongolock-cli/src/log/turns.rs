//! Computes the turns from the events of locks: who had a lock, from when to when. It has no input or output.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;

use mongodb::bson::DateTime;

/// A lock, or a permit of a semaphore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct TurnKey {
    pub(super) name: String,
    pub(super) permit: Option<u32>,
}

/// What is known about a hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TurnHold {
    pub(super) owner: Option<String>,
    /// `None` for a permit as well.
    pub(super) token: Option<i64>,
    pub(super) acquired_at: Option<DateTime>,
}

impl TurnHold {
    /// Adds the values that only the other hold has.
    fn complete(&mut self, other: Self) {
        self.owner = self.owner.take().or(other.owner);
        self.token = self.token.or(other.token);
        self.acquired_at = self.acquired_at.or(other.acquired_at);
    }

    /// Replaces the values by those of a newer hold, where it has them.
    fn change(&mut self, newer: Self) {
        let older = mem::replace(self, newer);
        self.complete(older);
    }
}

/// How a turn has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// It has not ended.
    Held,
    Released,
    Done,
    /// The lease was over without a release.
    Expired,
    /// As `Expired`, at this time or earlier: the next holder came, or the document was deleted.
    ExpiredBy,
    /// Events are missing, or the document was damaged.
    Unknown,
}

impl TurnEnd {
    /// The word of `--json`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Released => "released",
            Self::Done => "done",
            Self::Expired => "expired",
            Self::ExpiredBy => "expired_by",
            Self::Unknown => "unknown",
        }
    }
}

/// The kind of an event of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Acquired,
    /// The lease was detached or resumed: the turn continues.
    Changed,
    Ended(TurnEnd),
    /// All documents were deleted with their collection.
    AllDeleted,
}

/// An event of a lock: what has happened, when, and under which hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnEvent {
    pub(super) what: What,
    pub(super) at: DateTime,
    pub(super) key: TurnKey,
    pub(super) hold: TurnHold,
}

/// A document of a lock as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PresentDocument {
    pub(super) key: TurnKey,
    pub(super) hold: TurnHold,
    /// Whether the lock is held or its lease is over; `None` if the lock is free in another way.
    pub(super) end: Option<TurnEnd>,
    /// The end of the lease.
    pub(super) expires_at: DateTime,
}

/// The time in which a holder had a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) key: TurnKey,
    /// What is known about the hold; its beginning is the beginning of the turn.
    pub(super) hold: TurnHold,
    pub(super) to: Option<DateTime>,
    pub(super) end: TurnEnd,
}

impl Turn {
    fn is_on(&self) -> bool {
        self.end == TurnEnd::Held
    }

    fn finish(&mut self, end: TurnEnd, to: DateTime) {
        (self.end, self.to) = (end, Some(to));
    }

    /// Adds the data of the lock's present document, if it belongs to this turn, which is the last one of the lock.
    fn complete(&mut self, document: Option<PresentDocument>, read_at: DateTime) {
        let from = self.hold.acquired_at;
        let document = document.filter(|document| from.is_none() || document.hold.acquired_at == from);
        let Some(document) = document else {
            // A turn that has begun after the read is in progress. An earlier one would have its document.
            if self.is_on() && from.is_none_or(|from| from < read_at) {
                self.end = TurnEnd::Unknown;
            }
            return;
        };
        self.hold.complete(document.hold);
        match document.end {
            Some(TurnEnd::Expired) if self.is_on() => self.finish(TurnEnd::Expired, document.expires_at),
            None if self.is_on() => self.end = TurnEnd::Unknown,
            _ => {}
        }
    }

    /// Whether a part of it lies between these times, as far as is known.
    fn is_within(&self, since: DateTime, until: DateTime) -> bool {
        let from = self.hold.acquired_at;
        // A turn with an unknown end counts as in progress at its beginning.
        let to = self.to.or(from.filter(|_| !self.is_on()));
        from.is_none_or(|from| from <= until) && to.is_none_or(|to| to >= since)
    }
}

/// The turns that follow from the events.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// All turns in the order of their first events.
    all: Vec<Turn>,
    /// The index of the last turn of each lock.
    last: HashMap<TurnKey, usize>,
}

impl Turns {
    /// Applies the next event.
    pub(super) fn add(&mut self, event: TurnEvent) {
        let TurnEvent { what, at, key, hold } = event;
        let is_known = self.last.contains_key(&key);
        let last = self.last.get(&key).and_then(|at| self.all.get_mut(*at));
        let on = last.filter(|turn| turn.is_on());
        match (what, on) {
            (What::Acquired, on) => {
                let from = hold.acquired_at.unwrap_or(at);
                if let Some(before) = on {
                    before.finish(TurnEnd::ExpiredBy, from);
                }
                let acquired_at = Some(from);
                self.begin(key, TurnHold { acquired_at, ..hold }, TurnEnd::Held, None);
            }
            (What::Changed, Some(turn)) => turn.hold.change(hold),
            (What::Changed, None) => self.begin(key, hold, TurnEnd::Held, None),
            (What::Ended(end), Some(turn)) => turn.finish(end, at),
            // A mark was removed, or the document of a free lock was deleted.
            (What::Ended(end), None) if is_known || end == TurnEnd::ExpiredBy => {}
            // The turn has begun before the events.
            (What::Ended(end), None) => self.begin(key, hold, end, Some(at)),
            (What::AllDeleted, _) => {
                let all = self.all.iter_mut().filter(|turn| turn.is_on());
                all.for_each(|turn| turn.finish(TurnEnd::ExpiredBy, at));
            }
        }
    }

    fn begin(&mut self, key: TurnKey, hold: TurnHold, end: TurnEnd, to: Option<DateTime>) {
        self.last.insert(key.clone(), self.all.len());
        self.all.push(Turn { key, hold, to, end });
    }

    /// Adds the present documents, which were read after this time.
    pub(super) fn complete(&mut self, documents: Vec<PresentDocument>, read_at: DateTime) {
        let documents = documents.into_iter();
        let mut documents: HashMap<TurnKey, PresentDocument> = documents
            .map(|document| (document.key.clone(), document))
            .collect();
        for (key, at) in &self.last {
            self.all[*at].complete(documents.remove(key), read_at);
        }
        // No event concerned these locks.
        for (key, document) in documents {
            if let Some(end) = document.end {
                let to = (end == TurnEnd::Expired).then_some(document.expires_at);
                self.begin(key, document.hold, end, to);
            }
        }
    }

    /// The turns that touch the time between these, the latest beginning first, and those with an unknown one last.
    pub(super) fn latest_first(self, since: DateTime, until: DateTime) -> Vec<Turn> {
        let mut turns = self.all;
        turns.retain(|turn| turn.is_within(since, until));
        // If two turns have begun in the same millisecond, the one of the later event comes first.
        turns.reverse();
        turns.sort_by_key(|turn| Reverse(turn.hold.acquired_at));
        turns
    }
}

#[cfg(test)]
mod tests;

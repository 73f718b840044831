//! Converts changes of documents into events, with what is known about the locks. It has no input or output.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use super::event::{LockEvent, LockEventKind};
use crate::protocol::{Id, LockId, Ms, Name, Sight, Value};
use crate::store::Change;
use crate::{FencingToken, lock_id, permit_id};

/// The locks that are taken, as far as changes and reads have told.
#[derive(Default)]
pub(super) struct KnownLocks {
    taken: BTreeMap<Name, Taken>,
    /// Whether the stream may still report changes that the last read of all locks already contained, because it was
    /// opened before that read.
    is_behind: bool,
}

/// A lock that was taken when it was read or changed last.
struct Taken {
    lock_id: LockId,
    token: Option<i64>,
    acquired_at: Option<Ms>,
    /// When the lease ends, unless it was renewed; `None` if that need not be looked at (any more).
    ends: Option<Instant>,
}

/// The time of a change or of a read: by the server's clock, and that of this process.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: DateTime,
    pub(super) now: Instant,
}

impl Moment {
    pub(super) fn now(at: DateTime) -> Self {
        let now = Instant::now();
        Self { at, now }
    }
}

impl KnownLocks {
    /// Takes over what the stream tells: of a lock its document, or its fields that have changed, or the end of all documents.
    pub(super) fn change(&mut self, change: &Change) -> Vec<LockEvent> {
        let time = Moment::now(change.at);
        match &change.news {
            Some(news) if news.name.is_empty() => self.all_deleted(time),
            Some(news) => Vec::from_iter(self.change_of(&news.name, news.sight.as_ref(), time)),
            None => Vec::new(),
        }
    }

    fn change_of(&mut self, name: &Name, sight: Option<&Sight>, time: Moment) -> Option<LockEvent> {
        let at = time.at.timestamp_millis();
        let known = self.taken.get(name).filter(|_| self.is_behind);
        if known.is_some_and(|known| Some(at) < known.acquired_at) {
            // It belongs to a hold before the one that a read has found.
            return None;
        }
        match sight {
            Some(sight) => self.see(name, sight, false, time),
            None => Some(self.end(LockEventKind::Deleted, name, time)),
        }
    }

    /// Notes that the stream has reported all changes up to the last read.
    pub(super) fn caught_up(&mut self) {
        self.is_behind = false;
    }

    /// Takes over a read of all taken locks. Without a stream it is not known how a hold has ended that is no longer there.
    pub(super) fn read(&mut self, found: &[(Name, Sight)], time: Moment) -> Vec<LockEvent> {
        self.is_behind = true;
        let names: HashSet<&Name> = found.iter().map(|(name, _)| name).collect();
        let mut events = self.end_all(LockEventKind::Released, |name| !names.contains(name), time);
        for (name, sight) in found {
            events.extend(self.see(name, sight, true, time));
        }
        events
    }

    /// Takes over a read of the locks whose leases may have ended. The stream tells all other changes.
    pub(super) fn read_due(&mut self, due: &[Name], found: &[(Name, Sight)], time: Moment) -> Vec<LockEvent> {
        let mut events = Vec::new();
        for (name, sight) in found {
            let known = self.taken.get(name);
            if known.is_some_and(|known| !sight.document.is_sound() || sight.has(&known.lock_id)) {
                events.extend(self.see(name, sight, true, time));
            }
        }
        for name in due {
            if let Some(known) = self.taken.get_mut(name) {
                known.ends = known.ends.filter(|ends| *ends > time.now);
            }
        }
        events
    }

    /// The ends of all holds that are known, and an event without a name for all others.
    fn all_deleted(&mut self, time: Moment) -> Vec<LockEvent> {
        let mut events = self.end_all(LockEventKind::Deleted, |_| true, time);
        events.push(event(LockEventKind::Deleted, "", None, time.at));
        events
    }

    /// The locks whose leases have ended by what is known; they must be read, because renewals are not told.
    pub(super) fn due(&self, now: Instant) -> Vec<Name> {
        let is_due = |taken: &Taken| taken.ends.is_some_and(|ends| ends <= now);
        let due = self.taken.iter().filter(|(_, taken)| is_due(taken));
        due.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Compares a whole document, or the fields of one that have changed, with what is known of its lock.
    fn see(&mut self, name: &Name, sight: &Sight, is_whole: bool, time: Moment) -> Option<LockEvent> {
        let document = &sight.document;
        let has_end = matches!(document.expires_at, Value::Missing | Value::Date(_));
        let is_readable = has_end && (document.is_sound() || !is_whole);
        let Some(lock_id) = document.lock_id.text().filter(|_| is_readable) else {
            // A document that was none of a lock before is not damaged.
            let is_known = self.taken.contains_key(name);
            return is_known.then(|| self.end(LockEventKind::Damaged, name, time));
        };
        if lock_id::taken_by(lock_id).is_empty() {
            return Some(self.end(LockEventKind::Released, name, time));
        }
        let left = document
            .expires_at
            .date()
            .map(|end| end.saturating_sub(time.at.timestamp_millis()));
        let is_over = left.is_some_and(|left| left <= 0);
        let left = left.map(|left| Duration::from_millis(left.max(0).unsigned_abs()));
        let ends = left.and_then(|left| time.now.checked_add(left));
        let before = self.taken.get_mut(name);
        match before {
            Some(known) if known.lock_id == *lock_id && is_over => return self.expire(name, sight, time),
            Some(known) if known.lock_id == *lock_id => known.ends = ends,
            None if is_over && lock_id::is_mark(lock_id) => {}
            _ => return Some(self.begin(name, sight, lock_id, ends, time)),
        }
        None
    }

    /// Another claim, or a mark, has the lock.
    fn begin(
        &mut self,
        name: &Name,
        sight: &Sight,
        lock_id: &LockId,
        ends: Option<Instant>,
        time: Moment,
    ) -> LockEvent {
        let document = &sight.document;
        let before = self.taken.get(name);
        let taken = Taken {
            lock_id: Arc::clone(lock_id),
            token: document.token.long().or_else(|| before?.token),
            acquired_at: document.acquired_at.date().or_else(|| before?.acquired_at),
            ends,
        };
        let before = self.taken.insert(Arc::clone(name), taken);
        let before = before.filter(|before| !lock_id::is_mark(&before.lock_id));
        let (kind, replaced) = match kind(lock_id) {
            LockEventKind::Acquired if before.is_some() => (LockEventKind::TakenOver, before),
            kind => (kind, None),
        };
        LockEvent {
            previous_owner: replaced.and_then(|before| lock_id::owner(&before.lock_id).map(str::to_owned)),
            expires_at: document.expires_at.date().map(DateTime::from_millis),
            ..self.event(kind, name, time.at)
        }
    }

    /// The lease of the hold that is known has ended, or the period of its mark: then the lock is free.
    fn expire(&mut self, name: &Name, sight: &Sight, time: Moment) -> Option<LockEvent> {
        let known = self.taken.get_mut(name)?;
        known.ends.take()?;
        if lock_id::is_mark(&known.lock_id) {
            self.taken.remove(name);
            return None;
        }
        Some(LockEvent {
            expires_at: sight.document.expires_at.date().map(DateTime::from_millis),
            ..self.event(LockEventKind::Expired, name, time.at)
        })
    }

    /// Notes the end of a hold, which may be one that is not known.
    fn end(&mut self, kind: LockEventKind, name: &Name, time: Moment) -> LockEvent {
        let event = self.event(kind, name, time.at);
        self.taken.remove(name);
        event
    }

    fn end_all(
        &mut self,
        kind: LockEventKind,
        has_ended: impl Fn(&Name) -> bool,
        time: Moment,
    ) -> Vec<LockEvent> {
        let ended = self.taken.keys().filter(|name| has_ended(name)).cloned();
        let ended: Vec<Name> = ended.collect();
        let ended = ended.iter().map(|name| self.end(kind, name, time));
        ended.collect()
    }

    /// An event about a lock, with what is known of its hold.
    fn event(&self, kind: LockEventKind, id: &str, at: DateTime) -> LockEvent {
        event(kind, id, self.taken.get(id), at)
    }
}

/// An event about a lock, or about none, with what is known of its hold.
fn event(kind: LockEventKind, id: &str, hold: Option<&Taken>, at: DateTime) -> LockEvent {
    let (permit, token) = (permit_id::number(id), hold.and_then(|hold| hold.token));
    LockEvent {
        at,
        kind,
        name: permit_id::name(id).to_owned(),
        permit,
        owner: hold.and_then(|hold| Some(lock_id::owner(&hold.lock_id)?.to_owned())),
        previous_owner: None,
        fencing_token: token.filter(|_| permit.is_none()).map(FencingToken::from),
        lock_id: hold.map(|hold| hold.lock_id.to_string()),
        acquired_at: hold.and_then(|hold| hold.acquired_at.map(DateTime::from_millis)),
        expires_at: None,
        since: None,
    }
}

/// The event of a gap in the changes; `since` is the time of the last change before it.
pub(super) fn gap(since: Option<DateTime>, at: DateTime) -> LockEvent {
    let gap = event(LockEventKind::Gap, "", None, at);
    LockEvent { since, ..gap }
}

/// The kind of the event for a new claim with this id.
fn kind(lock_id: &str) -> LockEventKind {
    match Id::parse(lock_id) {
        _ if lock_id::is_mark(lock_id) => LockEventKind::Done,
        Some(id) if id.is_detached() => LockEventKind::Detached,
        Some(id) if id.is_resumed() => LockEventKind::Resumed,
        _ => LockEventKind::Acquired,
    }
}

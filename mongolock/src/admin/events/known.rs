//! Converts changes of documents into events, with what is known about the locks. It has no input or output.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mongodb::bson::{DateTime, Document};
use tokio::time::Instant;

use super::event::{LockEvent, LockEventKind};
use crate::store::{ChangeKind, DocumentChange, TakenLock, TakenOrDamaged};
use crate::{FencingToken, lock_id, permit_id};

/// The locks that are taken, according to the changes and reads so far.
pub(super) struct Known {
    taken: HashMap<String, Taken>,
    /// A time before which no known lease ends.
    next_end: Option<Instant>,
    /// Whether the stream may still report changes that the last read of all locks already contained, because it was
    /// opened before that read.
    is_behind: bool,
}

struct Taken {
    lock_id: String,
    token: Option<i64>,
    acquired_at: Option<DateTime>,
    /// When the lease ends, unless it was renewed; `None` if its end need not be checked (any more).
    ends: Option<Instant>,
}

/// The fields of a document after a change, or those that the change has changed.
struct Fields {
    lock_id: Option<String>,
    token: Option<i64>,
    acquired_at: Option<DateTime>,
    expires_at: Option<DateTime>,
    /// Whether a field has a value of another type.
    is_damaged: bool,
}

impl Fields {
    fn of(document: &Document) -> Self {
        let date = |field| document.get_datetime(field).ok().copied();
        let (lock_id, expires_at) = (document.get_str("lockId"), date("expiresAt"));
        Self {
            is_damaged: document.contains_key("lockId") && lock_id.is_err()
                || document.contains_key("expiresAt") && expires_at.is_none(),
            lock_id: lock_id.ok().map(|id| lock_id::taken_by(id).to_owned()),
            token: document.get_i64("fencingToken").ok(),
            acquired_at: date("acquiredAt"),
            expires_at,
        }
    }

    fn read(lock: &TakenLock) -> Self {
        Self {
            is_damaged: false,
            lock_id: Some(lock.lock_id.clone()),
            token: Some(lock.token),
            acquired_at: Some(lock.acquired_at),
            expires_at: Some(lock.expires_at),
        }
    }

    /// When the lease ends by the clock of this process, if the fields are those at this time of the server, which is now.
    fn ends(&self, at: DateTime, now: Instant) -> Option<Instant> {
        let left = self
            .expires_at?
            .timestamp_millis()
            .saturating_sub(at.timestamp_millis());
        now.checked_add(Duration::from_millis(u64::try_from(left).unwrap_or_default()))
    }
}

impl Known {
    pub(super) fn new() -> Self {
        Self {
            taken: HashMap::new(),
            next_end: None,
            is_behind: false,
        }
    }

    /// Applies a change that was received at this time.
    pub(super) fn change(&mut self, change: DocumentChange, now: Instant) -> Vec<LockEvent> {
        let at = change.at;
        let event = match change.kind {
            ChangeKind::Written { id, document } => self.written(&id, &document, at, now),
            ChangeKind::Updated { id, fields, removed } => {
                let mut fields = Fields::of(&fields);
                fields.is_damaged |= removed
                    .iter()
                    .any(|field| field == "lockId" || field == "expiresAt");
                self.set(&id, &fields, at, now)
            }
            ChangeKind::Deleted { id } => self.end(LockEventKind::Deleted, &id, at),
            ChangeKind::AllDeleted => return self.all_deleted(at),
            ChangeKind::Other => None,
        };
        event.into_iter().collect()
    }

    /// Applies an insertion or a replacement.
    fn written(&mut self, id: &str, document: &Document, at: DateTime, now: Instant) -> Option<LockEvent> {
        let fields = Fields::of(document);
        if fields.lock_id.is_some() && fields.expires_at.is_some() {
            return self.set(id, &fields, at, now);
        }
        // A document that was never a lock does not count as damaged.
        self.taken
            .contains_key(id)
            .then(|| self.end(LockEventKind::Damaged, id, at))?
    }

    fn set(&mut self, id: &str, fields: &Fields, at: DateTime, now: Instant) -> Option<LockEvent> {
        if fields.is_damaged {
            return self.end(LockEventKind::Damaged, id, at);
        }
        if self.is_stale(id, fields, at) {
            return None;
        }
        let ends = fields.ends(at, now);
        self.expect_end(ends);
        let before = self.taken.get_mut(id);
        match (&fields.lock_id, before) {
            (None, before) => {
                // An update of other fields by hand is not a renewal.
                if let Some(before) = before.filter(|_| fields.expires_at.is_some()) {
                    before.ends = ends;
                }
                None
            }
            (Some(lock_id), _) if lock_id.is_empty() => self.end(LockEventKind::Released, id, at),
            // A read has already reported it.
            (Some(lock_id), Some(before)) if *lock_id == before.lock_id => {
                before.ends = ends;
                None
            }
            (Some(lock_id), before) => {
                let is_held = before.is_some_and(|before| !lock_id::is_mark(&before.lock_id));
                let kind = match kind(lock_id) {
                    LockEventKind::Acquired if is_held => LockEventKind::TakenOver,
                    kind => kind,
                };
                self.begin(kind, id, fields, at, now)
            }
        }
    }

    /// Whether a change belongs to a hold before the one that a read has found.
    fn is_stale(&self, id: &str, fields: &Fields, at: DateTime) -> bool {
        let Some(known) = self.taken.get(id).filter(|_| self.is_behind) else {
            return false;
        };
        let is_claim = fields.lock_id.as_ref().is_some_and(|id| !id.is_empty());
        if is_claim {
            fields.token.is_some() && fields.token < known.token
        } else {
            known.acquired_at.is_some_and(|acquired_at| at < acquired_at)
        }
    }

    /// Notes that the stream has reported all changes up to the last read.
    pub(super) fn caught_up(&mut self) {
        self.is_behind = false;
    }

    /// Applies a read of all taken locks. Without a stream it is unknown how a missing hold has ended.
    pub(super) fn read(
        &mut self,
        found: Vec<TakenOrDamaged>,
        read_at: DateTime,
        now: Instant,
    ) -> Vec<LockEvent> {
        self.is_behind = true;
        let ids: HashSet<&str> = found.iter().map(id_of).collect();
        let mut gone: Vec<String> = self
            .taken
            .keys()
            .filter(|id| !ids.contains(id.as_str()))
            .cloned()
            .collect();
        gone.sort_unstable();
        let ended = gone
            .iter()
            .filter_map(|id| self.end(LockEventKind::Released, id, read_at));
        let mut events: Vec<LockEvent> = ended.collect();
        for found in found {
            let event = match found {
                Ok(lock) => match self.taken.get(&lock.id) {
                    Some(known) if known.lock_id == lock.lock_id => self.read_known(&lock, now),
                    _ if lock_id::is_mark(&lock.lock_id) && lock.is_over() => None,
                    _ => self.begin(
                        kind(&lock.lock_id),
                        &lock.id,
                        &Fields::read(&lock),
                        lock.read_at,
                        now,
                    ),
                },
                Err(id) if self.taken.contains_key(&id) => self.end(LockEventKind::Damaged, &id, read_at),
                Err(_) => None,
            };
            events.extend(event);
        }
        events
    }

    /// Applies a read of the locks whose leases may have ended. The stream reports all other changes.
    pub(super) fn read_due(
        &mut self,
        due: &[String],
        found: Vec<TakenOrDamaged>,
        read_at: DateTime,
        now: Instant,
    ) -> Vec<LockEvent> {
        let mut found: HashMap<String, TakenOrDamaged> = found
            .into_iter()
            .map(|found| (id_of(&found).to_owned(), found))
            .collect();
        let mut events = Vec::new();
        for id in due {
            let event = match (found.remove(id), self.taken.get_mut(id)) {
                (Some(Ok(lock)), Some(known)) if known.lock_id == lock.lock_id => self.read_known(&lock, now),
                (Some(Err(id)), Some(_)) => self.end(LockEventKind::Damaged, &id, read_at),
                (_, Some(known)) => {
                    known.ends = None;
                    None
                }
                (_, None) => None,
            };
            events.extend(event);
        }
        events
    }

    /// Applies a read of a known hold.
    fn read_known(&mut self, lock: &TakenLock, now: Instant) -> Option<LockEvent> {
        let known = self.taken.get_mut(&lock.id)?;
        if !lock.is_over() {
            known.ends = Fields::read(lock).ends(lock.read_at, now);
            return None;
        }
        known.ends.take()?;
        if lock_id::is_mark(&lock.lock_id) {
            // The period is over, and the lock is free.
            self.taken.remove(&lock.id);
            return None;
        }
        let expires_at = Some(lock.expires_at);
        let expired = self.event(LockEventKind::Expired, &lock.id, lock.read_at)?;
        Some(LockEvent {
            expires_at,
            ..expired
        })
    }

    fn begin(
        &mut self,
        kind: LockEventKind,
        id: &str,
        fields: &Fields,
        at: DateTime,
        now: Instant,
    ) -> Option<LockEvent> {
        let ends = fields.ends(at, now);
        self.expect_end(ends);
        let before = self.taken.get(id);
        let replaced = before.filter(|_| kind == LockEventKind::TakenOver);
        let previous_owner = replaced.and_then(|before| lock_id::owner(&before.lock_id));
        let previous_owner = previous_owner.map(str::to_owned);
        let taken = Taken {
            lock_id: fields.lock_id.clone()?,
            token: fields.token.or_else(|| before?.token),
            acquired_at: fields.acquired_at.or_else(|| before?.acquired_at),
            ends,
        };
        self.taken.insert(id.to_owned(), taken);
        Some(LockEvent {
            previous_owner,
            expires_at: fields.expires_at,
            ..self.event(kind, id, at)?
        })
    }

    /// Notes the end of a hold, which may be unknown.
    fn end(&mut self, kind: LockEventKind, id: &str, at: DateTime) -> Option<LockEvent> {
        let event = self.event(kind, id, at);
        self.taken.remove(id);
        event
    }

    /// The ends of all known holds, and an event without a name for all others.
    fn all_deleted(&mut self, at: DateTime) -> Vec<LockEvent> {
        let mut ids: Vec<String> = self.taken.keys().cloned().collect();
        ids.sort_unstable();
        let deleted = ids
            .iter()
            .filter_map(|id| self.end(LockEventKind::Deleted, id, at));
        let mut events: Vec<LockEvent> = deleted.collect();
        events.push(LockEvent::new(LockEventKind::Deleted, at));
        events
    }

    /// An event about a lock, with what is known of its hold; `None` for a document of the library's own.
    fn event(&self, kind: LockEventKind, id: &str, at: DateTime) -> Option<LockEvent> {
        if !permit_id::is_of_user(id) {
            return None;
        }
        let permit = permit_id::number(id);
        let mut event = LockEvent {
            name: permit_id::shown(id).to_owned(),
            permit,
            ..LockEvent::new(kind, at)
        };
        if let Some(taken) = self.taken.get(id) {
            event.owner = lock_id::owner(&taken.lock_id).map(str::to_owned);
            event.fencing_token = taken.token.filter(|_| permit.is_none()).map(FencingToken::new);
            event.lock_id = Some(taken.lock_id.clone());
            event.acquired_at = taken.acquired_at;
            event.at = within_second(at, taken.acquired_at);
        }
        Some(event)
    }

    fn expect_end(&mut self, ends: Option<Instant>) {
        self.next_end = self.next_end.into_iter().chain(ends).min();
    }

    /// The locks whose known leases have ended; they must be read, because renewals are not reported.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        self.next_end = self.taken.values().filter_map(|taken| taken.ends).min();
        let is_due = |taken: &Taken| taken.ends.is_some_and(|ends| ends <= now);
        let due = self.taken.iter().filter(|(_, taken)| is_due(taken));
        due.map(|(id, _)| id.clone()).collect()
    }

    /// A time at which [`Self::due`] may return a lock; `None` if there is none.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.next_end
    }
}

/// The time of an event. Before MongoDB 6.0 it is a whole second, in which the hold may have begun as well.
fn within_second(at: DateTime, acquired_at: Option<DateTime>) -> DateTime {
    let is_second = at.timestamp_millis().rem_euclid(1000) == 0;
    let is_within = |begun: &DateTime| {
        (0..1000).contains(&(begun.timestamp_millis().saturating_sub(at.timestamp_millis())))
    };
    acquired_at
        .filter(|begun| is_second && is_within(begun))
        .unwrap_or(at)
}

/// The kind of the event for a new claim with this id.
fn kind(lock_id: &str) -> LockEventKind {
    if lock_id::is_mark(lock_id) {
        LockEventKind::Done
    } else if lock_id::is_detached(lock_id) {
        LockEventKind::Detached
    } else if lock_id::is_resumed(lock_id) {
        LockEventKind::Resumed
    } else {
        LockEventKind::Acquired
    }
}

fn id_of(found: &TakenOrDamaged) -> &str {
    found.as_ref().map_or_else(String::as_str, |lock| &lock.id)
}

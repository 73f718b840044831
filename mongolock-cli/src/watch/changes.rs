//! What a change of a document means: acquired, detached, resumed, released, taken over, expired, deleted, damaged, done. No
//! input or output.

use std::collections::HashMap;

use mongodb::bson::{DateTime, Document};

use super::lock_id;

/// What stands between the name of a semaphore and the number of a permit in the name of a document.
const PERMIT: char = '\u{1f}';

/// What happens to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Acquired,
    /// No process renews the lease any more.
    Detached,
    /// A process holds the lock of a detached lease again.
    Resumed,
    Released,
    TakenOver,
    Expired,
    Deleted,
    /// The document can no longer be read as a lock.
    Damaged,
    Done,
    Waiting,
    /// Events were missed; the locks were read again.
    Gap,
    /// No primary answers.
    Gone,
    /// A primary answers again.
    Back,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Detached => "detached",
            Self::Resumed => "resumed",
            Self::Released => "released",
            Self::TakenOver => "taken_over",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Damaged => "damaged",
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Gap => "gap",
            Self::Gone => "gone",
            Self::Back => "back",
        }
    }
}

/// One line of `watch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) permit: Option<u32>,
    /// The owner that has the lock now, or had it last.
    pub(super) owner: Option<String>,
    /// The owner that a takeover has replaced.
    pub(super) before: Option<String>,
    /// `None` for a permit, and if it is not known.
    pub(super) token: Option<i64>,
    /// Why no primary answers.
    pub(super) problem: Option<String>,
}

impl Change {
    /// A line that is not about a lock.
    pub(super) fn notice(kind: Kind, problem: Option<String>) -> Self {
        Self {
            kind,
            name: String::new(),
            permit: None,
            owner: None,
            before: None,
            token: None,
            problem,
        }
    }
}

/// The state of a lock that is not free.
#[derive(Debug, Clone)]
struct Taken {
    owner: Option<String>,
    /// `None` if no event has told it yet.
    token: Option<i64>,
    expires_at: i64,
    is_mark: bool,
    is_detached: bool,
    has_expired: bool,
}

/// The locks that are taken, as far as events and reads have told.
#[derive(Debug, Default)]
pub(super) struct Locks {
    taken: HashMap<String, Taken>,
}

/// The fields of a lock document, or those that a change has changed.
struct Fields<'a> {
    lock_id: &'a str,
    expires_at: i64,
    token: Option<i64>,
}

impl<'a> Fields<'a> {
    /// The fields; `None` if the document is no lock.
    fn of(document: &'a Document) -> Option<Self> {
        Some(Self {
            lock_id: document.get_str("lockId").ok()?,
            expires_at: document.get_datetime("expiresAt").ok()?.timestamp_millis(),
            token: document.get_i64("fencingToken").ok(),
        })
    }
}

impl Locks {
    /// Takes over an insertion or a change: all fields of the document after it, or those that have changed. The end of a
    /// hold does not change its token.
    pub(super) fn set(&mut self, id: &str, document: &Document, now: DateTime) -> Option<Change> {
        parts(id)?;
        let fields = Fields::of(document)?;
        if fields.lock_id.is_empty() {
            return self.free(id, Kind::Released);
        }
        let is_mark = lock_id::is_mark(fields.lock_id);
        let is_detached = lock_id::is_detached(fields.lock_id);
        let taken = Taken {
            owner: lock_id::owner(fields.lock_id).map(str::to_owned),
            token: fields.token.or_else(|| self.taken.get(id)?.token),
            expires_at: fields.expires_at,
            is_mark,
            is_detached,
            has_expired: fields.expires_at <= now.timestamp_millis(),
        };
        let before = self.taken.insert(id.to_owned(), taken.clone());
        let kind = match &before {
            // A renewal, or a read after the event.
            Some(before)
                if before.token == taken.token
                    && (before.is_mark, before.is_detached) == (is_mark, is_detached) =>
            {
                return None;
            }
            _ if is_mark => Kind::Done,
            _ if is_detached => Kind::Detached,
            _ if lock_id::is_resumed(fields.lock_id) => Kind::Resumed,
            Some(before) if !before.is_mark => Kind::TakenOver,
            _ => Kind::Acquired,
        };
        let replaced = before
            .filter(|_| kind == Kind::TakenOver)
            .and_then(|before| before.owner);
        change(kind, id, taken.owner, replaced, taken.token)
    }

    /// Notes that a document was deleted.
    pub(super) fn delete(&mut self, id: &str) -> Option<Change> {
        let before = self.taken.remove(id);
        let (owner, token) = before.map_or((None, None), |before| (before.owner, before.token));
        change(Kind::Deleted, id, owner, None, token)
    }

    fn free(&mut self, id: &str, kind: Kind) -> Option<Change> {
        let before = self.taken.remove(id)?;
        change(kind, id, before.owner, None, before.token)
    }

    /// The locks whose leases have ended by what is known; they must be read again, because renewals are not told.
    pub(super) fn due(&self, now: DateTime) -> Vec<String> {
        let is_due = |taken: &Taken| !taken.has_expired && taken.expires_at <= now.timestamp_millis();
        let due = self.taken.iter().filter(|(_, taken)| is_due(taken));
        due.map(|(id, _)| id.clone()).collect()
    }

    /// The earliest end of a lease that is known.
    pub(super) fn next_end(&self) -> Option<i64> {
        let running = self.taken.values().filter(|taken| !taken.has_expired);
        running.map(|taken| taken.expires_at).min()
    }

    /// Takes over what a read has found of a lock whose lease may have ended.
    pub(super) fn read_due(
        &mut self,
        id: &str,
        document: Option<&Document>,
        now: DateTime,
    ) -> Option<Change> {
        let Some(document) = document else {
            return self.delete(id);
        };
        if Fields::of(document).is_none() {
            // Its lease would be due for ever.
            return self.free(id, Kind::Damaged);
        }
        if let Some(change) = self.set(id, document, now) {
            return Some(change);
        }
        let taken = self.taken.get(id).filter(|taken| taken.has_expired)?;
        if taken.is_mark {
            // The period is over; the lock is free.
            self.taken.remove(id);
            return None;
        }
        change(Kind::Expired, id, taken.owner.clone(), None, taken.token)
    }

    /// The ids of all locks that are known to be taken.
    pub(super) fn ids(&self) -> Vec<String> {
        self.taken.keys().cloned().collect()
    }
}

/// A process that has begun to wait.
pub(super) fn waiting(document: &Document) -> Option<Change> {
    let id = document.get_str("name").ok()?;
    let id = id.strip_suffix(PERMIT).unwrap_or(id);
    let owner = document.get_str("owner").ok().map(str::to_owned);
    change(Kind::Waiting, id, owner, None, None)
}

fn change(
    kind: Kind,
    id: &str,
    owner: Option<String>,
    before: Option<String>,
    token: Option<i64>,
) -> Option<Change> {
    let (name, permit) = parts(id)?;
    Some(Change {
        kind,
        name: name.to_owned(),
        permit,
        owner,
        before,
        token: token.filter(|_| permit.is_none()),
        problem: None,
    })
}

/// The name, and the number of a permit; `None` for a document of the library's own.
fn parts(id: &str) -> Option<(&str, Option<u32>)> {
    match id.rsplit_once(PERMIT) {
        None => Some((id, None)),
        Some((name, number)) => Some((name, Some(number.parse().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn at(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    fn lock(lock_id: &str, expires_at: i64, token: i64) -> Document {
        doc! { "lockId": lock_id, "expiresAt": at(expires_at), "fencingToken": token }
    }

    fn kind(change: Option<Change>) -> Option<Kind> {
        change.map(|change| change.kind)
    }

    #[test]
    fn a_life_of_a_lock() {
        let mut locks = Locks::default();
        let acquired = locks.set("a", &lock("anna#1", 100, 1), at(10)).expect("a line");
        assert_eq!(
            (acquired.kind, acquired.owner.as_deref()),
            (Kind::Acquired, Some("anna"))
        );
        assert_eq!(
            kind(locks.set("a", &lock("anna#1", 200, 1), at(50))),
            None,
            "a renewal"
        );
        assert_eq!(locks.due(at(199)), Vec::<String>::new());
        assert_eq!(locks.next_end(), Some(200));
        assert_eq!(locks.due(at(200)), ["a"]);
        assert_eq!(
            kind(locks.read_due("a", Some(&lock("anna#1", 300, 1)), at(200))),
            None
        );
        assert_eq!(
            kind(locks.read_due("a", Some(&lock("anna#1", 300, 1)), at(300))),
            Some(Kind::Expired)
        );
        assert_eq!(locks.due(at(400)), Vec::<String>::new(), "it is told once");
        let taken = locks.set("a", &lock("bert#2", 500, 2), at(400)).expect("a line");
        assert_eq!(
            (taken.kind, taken.before.as_deref()),
            (Kind::TakenOver, Some("anna"))
        );
        assert_eq!(
            kind(locks.set("a", &lock("", 410, 2), at(410))),
            Some(Kind::Released)
        );
        assert_eq!(kind(locks.set("a", &lock("", 410, 2), at(410))), None);
        assert_eq!(
            kind(locks.set("a", &lock("anna#3", 600, 3), at(420))),
            Some(Kind::Acquired)
        );
        assert_eq!(
            kind(locks.set("a", &lock("done:anna#3", 900, 3), at(430))),
            Some(Kind::Done)
        );
        assert_eq!(
            kind(locks.read_due("a", Some(&lock("done:anna#3", 900, 3)), at(900))),
            None
        );
        let changed = doc! { "lockId": "", "expiresAt": at(1) };
        assert_eq!(
            kind(locks.set("a", &lock("anna#4", 999, 4), at(910))),
            Some(Kind::Acquired)
        );
        let released = locks.set("a", &changed, at(920)).expect("a line");
        assert_eq!((released.kind, released.token), (Kind::Released, Some(4)));
        assert_eq!(kind(locks.delete("a")), Some(Kind::Deleted));
        assert!(locks.ids().is_empty());
    }

    #[test]
    fn a_lease_changes_hands() {
        let id = |version: char, byte: &str| format!("anna#0b8e3f3a-6d0c-{version}a53-a3a4-5f0f6a5c{byte}11");
        let mut locks = Locks::default();
        for (lock_id, token, wanted) in [
            (id('4', "00"), 1, Some(Kind::Acquired)),
            (id('8', "d7"), 1, Some(Kind::Detached)),
            (id('8', "d7"), 1, None),
            (id('4', "d7"), 2, Some(Kind::Resumed)),
            (id('4', "d7"), 2, None),
            (id('8', "01"), 2, Some(Kind::Detached)),
            (id('4', "00"), 3, Some(Kind::TakenOver)),
            ("done:".to_owned() + &id('4', "d7"), 3, Some(Kind::Done)),
        ] {
            let change = locks.set("a", &lock(&lock_id, 100, token), at(10));
            assert_eq!(kind(change), wanted, "{lock_id}");
        }
    }

    #[test]
    fn a_document_that_becomes_unreadable_is_told_once_and_no_longer_due() {
        let mut locks = Locks::default();
        locks.set("a", &lock("anna#1", 100, 1), at(10));
        let damaged = doc! { "lockId": "anna#1", "expiresAt": "soon", "fencingToken": 1_i64 };
        assert_eq!(kind(locks.set("a", &damaged, at(50))), None);
        assert_eq!(locks.due(at(100)), ["a"]);
        let told = locks.read_due("a", Some(&damaged), at(100)).expect("a line");
        assert_eq!((told.kind, told.owner.as_deref()), (Kind::Damaged, Some("anna")));
        assert_eq!(locks.due(at(100)), Vec::<String>::new());
        assert_eq!(locks.next_end(), None);
        assert_eq!(locks.read_due("a", Some(&damaged), at(101)), None);
        assert_eq!(
            kind(locks.set("a", &lock("bert#2", 200, 2), at(102))),
            Some(Kind::Acquired)
        );
    }

    #[test]
    fn permits_have_a_number_and_internal_documents_no_line() {
        let mut locks = Locks::default();
        let permit = locks
            .set("s\u{1f}2", &lock("anna#1", 100, 1), at(0))
            .expect("a line");
        assert_eq!((permit.name.as_str(), permit.permit), ("s", Some(2)));
        assert_eq!(permit.token, None, "a permit has no token");
        assert_eq!(
            locks.set("mongolock\u{1f}ttl-index", &lock("anna#1", 100, 1), at(0)),
            None
        );
        assert_eq!(locks.set("foreign", &doc! { "x": 1 }, at(0)), None);
        let waiter = waiting(&doc! { "name": "s\u{1f}", "owner": "bert" }).expect("a line");
        assert_eq!(
            (waiter.name.as_str(), waiter.permit, waiter.owner.as_deref()),
            ("s", None, Some("bert"))
        );
    }
}

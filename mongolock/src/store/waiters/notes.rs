//! Notes about holds, among the documents of the waiters. They have no `name`, so that no reader takes them for waiters, and
//! they are hints as those are: without the rights on the collection, or after an error, there are none.
//!
//! `note:<lockId>` is what the holder has noted, and `forced:<lockId>` who has ended the hold by force.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::LockError;
use crate::store::mongo::{MongoStore, Query, millis};
use crate::timing::NOTE_KEPT;

/// What a program has noted about one of its holds.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) lock_id: Arc<str>,
    /// `None` takes back the note of an earlier holder with the same id.
    pub(crate) text: Option<Arc<str>>,
    /// The time for which the document is kept.
    pub(crate) kept: Duration,
}

/// The notes about these claims by their ids.
pub(crate) type NotesById = HashMap<Arc<str>, String>;

/// Who has ended these claims by force, by their ids.
pub(crate) type ForcesById = HashMap<Arc<str>, Force>;

/// Who has ended holds by force, and why.
#[derive(Debug, Clone)]
pub(crate) struct Force {
    /// The owner of the provider that has done it.
    pub(crate) by: String,
    /// The name of its host.
    pub(crate) host: String,
    pub(crate) reason: Option<String>,
}

/// A hold that was ended by force, as its document was before.
#[derive(Debug, Clone)]
pub(crate) struct EndedHold {
    /// The id of its claim; empty for the rest of a minimum hold.
    pub(crate) lock_id: Arc<str>,
    /// The end of its lease: until then its holder may go on without noticing.
    pub(crate) expires_at: DateTime,
}

impl Display for Force {
    /// `anna@ops-1: stuck since the deploy`. The owner of most providers has the host in it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by)?;
        if !self.by.contains(&self.host) {
            write!(f, "@{}", self.host)?;
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl MongoStore {
    /// Writes these notes with one command.
    pub(crate) async fn write_notes(&self, notes: &[Note], limit: Duration) -> Result<(), LockError> {
        let update = |note: &Note| {
            let text = note.text.as_deref().map_or(Bson::Null, Bson::from);
            upsert(note_id(NOTE, &note.lock_id), doc! { "note": text }, note.kept)
        };
        self.update_notes(notes.iter().map(update).collect(), limit).await
    }

    /// Notes by whom these holds were ended, with one command. It follows their ends, so that it names no hold that goes on.
    /// A holder that has noticed the end of one of its locks has noticed that of the hold.
    pub(crate) async fn note_forced(
        &self,
        ended: &[EndedHold],
        force: &Force,
        limit: Duration,
    ) -> Result<(), LockError> {
        let Force { by, host, reason } = force;
        let reason = reason.as_deref().map_or(Bson::Null, Bson::from);
        let update = |hold: &EndedHold| {
            let fields = doc! { "by": by, "host": host, "reason": &reason, "expiresAt": hold.expires_at };
            upsert(note_id(FORCED, &hold.lock_id), fields, NOTE_KEPT)
        };
        self.update_notes(ended.iter().map(update).collect(), limit).await
    }

    async fn update_notes(&self, updates: Vec<Document>, limit: Duration) -> Result<(), LockError> {
        let command = doc! { "update": self.waiters.name(), "updates": updates, "ordered": false };
        self.write_hint(command, limit).await.map(drop)
    }

    /// The notes about these claims, with one query. An id without a note is left out.
    pub(crate) async fn notes(&self, lock_ids: &[Arc<str>], limit: Duration) -> Result<NotesById, LockError> {
        let read = |document: &Document| Some(document.get_str("note").ok()?.to_owned());
        self.read_notes(NOTE, lock_ids, limit, read).await
    }

    /// Who has ended these holds by force. A second command then notes for the operator that their holders have noticed it.
    pub(crate) async fn see_forced(
        &self,
        lock_ids: &[Arc<str>],
        limit: Duration,
    ) -> Result<ForcesById, LockError> {
        let text = |document: &Document, field| document.get_str(field).ok().map(str::to_owned);
        let read = |document: &Document| {
            Some(Force {
                by: text(document, "by")?,
                host: text(document, "host").unwrap_or_default(),
                reason: text(document, "reason"),
            })
        };
        let found = self.read_notes(FORCED, lock_ids, limit, read).await?;
        if !found.is_empty() {
            let ids: Vec<String> = found.keys().map(|id| note_id(FORCED, id)).collect();
            let seen = doc! { "q": { "_id": { "$in": ids } }, "u": [{ "$set": { "seen": "$$NOW" } }], "multi": true };
            // The operator waits for the rest of the lease otherwise.
            let _ = self.update_notes(vec![seen], limit).await;
        }
        Ok(found)
    }

    /// What the documents of this kind say about these claims.
    async fn read_notes<T>(
        &self,
        kind: &str,
        lock_ids: &[Arc<str>],
        limit: Duration,
        read: impl Fn(&Document) -> Option<T>,
    ) -> Result<HashMap<Arc<str>, T>, LockError> {
        let ids: Vec<String> = lock_ids.iter().map(|id| note_id(kind, id)).collect();
        let query = Query {
            filter: doc! { "_id": { "$in": ids } },
            fields: doc! { "note": 1, "by": 1, "host": 1, "reason": 1 },
            most: lock_ids.len(),
            level: "local",
        };
        let found = query.run(&self.waiters, limit).await?;
        let read = |document: Document| {
            let lock_id = document.get_str("_id").ok()?.strip_prefix(kind)?;
            Some((Arc::from(lock_id), read(&document)?))
        };
        Ok(found.filter_map(read).collect())
    }
}

/// What stands before the id of a claim in the `_id` of its note, and in that of its forced release.
const NOTE: &str = "note:";
const FORCED: &str = "forced:";

fn note_id(kind: &str, lock_id: &str) -> String {
    format!("{kind}{lock_id}")
}

/// The update that writes a document with these fields, which are literals.
fn upsert(id: String, fields: Document, kept: Duration) -> Document {
    let literal = |(field, value): (String, Bson)| (field, doc! { "$literal": value }.into());
    let mut set: Document = fields.into_iter().map(literal).collect();
    set.insert("at", "$$NOW");
    set.insert("until", doc! { "$add": ["$$NOW", millis(kept)] });
    doc! { "q": { "_id": id }, "u": [{ "$set": set }], "upsert": true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_named_once() {
        let force = |by: &str, reason: Option<&str>| {
            let force = Force {
                by: by.to_owned(),
                host: "ops-1".to_owned(),
                reason: reason.map(str::to_owned),
            };
            force.to_string()
        };
        assert_eq!(force("anna", Some("stuck")), "anna@ops-1: stuck");
        assert_eq!(force("ops-1:2283", None), "ops-1:2283");
    }
}

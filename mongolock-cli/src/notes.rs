//! What people and programs have noted about holds: `note:<lockId>` is what a holder works on, and `forced:<lockId>` who has
//! released it by force. The documents are beside those of the waiters.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};

/// The beginning of the `_id` of a note, and of that of a forced release.
const NOTE: &str = "note:";
const FORCED: &str = "forced:";

/// The limit of a query at the server.
const LIMIT: Duration = Duration::from_secs(5);

/// How many holds one query asks for.
const HOLDS: usize = 10_000;

/// Notes, by the `lockId` of the hold.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    notes: HashMap<String, String>,
    forced: HashMap<String, Forced>,
}

/// A forced release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forced {
    /// The user, and the host if it is noted.
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    pub(crate) at: DateTime,
    /// The end that the lease had before.
    pub(crate) expires_at: Option<DateTime>,
    /// Whether the former holder has noticed it.
    pub(crate) is_seen: bool,
}

impl Notes {
    /// The notes of these holds. There are none without the right to read them.
    pub(crate) async fn of(waiters: &Collection<Document>, lock_ids: &[&str]) -> Self {
        let mut notes = Self::default();
        for some in lock_ids.chunks(HOLDS) {
            // What was read before an error is right.
            if notes.read(waiters, some).await.is_err() {
                break;
            }
        }
        notes
    }

    async fn read(&mut self, waiters: &Collection<Document>, lock_ids: &[&str]) -> Result<(), Error> {
        let ids = |prefix: &'static str| lock_ids.iter().map(move |id| format!("{prefix}{id}"));
        let ids: Vec<String> = ids(NOTE).chain(ids(FORCED)).collect();
        let found = waiters
            .find(doc! { "_id": { "$in": ids } })
            .read_concern(ReadConcern::local())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .max_time(LIMIT);
        let mut found = found.await?;
        while found.advance().await? {
            self.add(&found.deserialize_current()?);
        }
        Ok(())
    }

    fn add(&mut self, document: &Document) -> Option<()> {
        let id = document.get_str("_id").ok()?;
        let text = |field: &str| document.get_str(field).ok().map(str::to_owned);
        let date = |field: &str| document.get_datetime(field).ok().copied();
        if let Some(hold) = id.strip_prefix(NOTE) {
            self.notes.insert(hold.to_owned(), text("note")?);
        } else {
            let forced = Forced {
                by: match (text("by")?, text("host")) {
                    (by, Some(host)) => format!("{by}@{host}"),
                    (by, None) => by,
                },
                reason: text("reason"),
                at: date("at")?,
                expires_at: date("expiresAt"),
                is_seen: document.contains_key("seen"),
            };
            self.forced.insert(id.strip_prefix(FORCED)?.to_owned(), forced);
        }
        Some(())
    }

    pub(crate) fn note(&self, lock_id: &str) -> Option<&str> {
        self.notes.get(lock_id).map(String::as_str)
    }

    pub(crate) fn forced(&self, lock_id: &str) -> Option<&Forced> {
        self.forced.get(lock_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_notes_are_read() {
        let mut notes = Notes::default();
        let at = DateTime::from_millis(5);
        for document in [
            doc! { "_id": "note:anna#1", "note": "deploys web", "at": at },
            doc! { "_id": "note:anna#2", "note": 1 },
            doc! { "_id": "forced:anna#1", "by": "bert", "host": "web-1", "reason": "it hung", "at": at },
            doc! { "_id": "forced:anna#3", "by": "bert", "reason": null, "at": at, "expiresAt": at, "seen": at },
            doc! { "_id": "forced:anna#4", "host": "web-1" },
            doc! { "_id": 7 },
        ] {
            notes.add(&document);
        }
        assert_eq!(notes.note("anna#1"), Some("deploys web"));
        assert_eq!((notes.note("anna#2"), notes.forced("anna#4")), (None, None));
        let reason = |id: &str| notes.forced(id).and_then(|forced| forced.reason.as_deref());
        assert_eq!((reason("anna#1"), reason("anna#3")), (Some("it hung"), None));
        assert_eq!(notes.forced("anna#3").map(|forced| forced.at), Some(at));
        let by = |id: &str| notes.forced(id).map(|forced| forced.by.as_str());
        assert_eq!((by("anna#1"), by("anna#3")), (Some("bert@web-1"), Some("bert")));
        let noticed = |id: &str| notes.forced(id).map(|forced| (forced.is_seen, forced.expires_at));
        assert_eq!(noticed("anna#1"), Some((false, None)));
        assert_eq!(noticed("anna#3"), Some((true, Some(at))));
    }
}

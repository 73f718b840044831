use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::memory::MemoryStore;
use super::mongo::{MongoStore, millis};
use crate::LockError;
use crate::lock_id;
use crate::once::MarkEnd;
use crate::store::LeaseId;

/// The server's reply to a request that marks a lock as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkReply {
    /// The document has the mark of the claim.
    Marked,
    /// The period had ended, and the claim was released.
    Released,
    /// The claim does not have the lock, and has left no mark.
    Gone {
        /// Whether the period had ended: an earlier request may have released the claim.
        is_over: bool,
    },
}

impl MarkReply {
    /// The reply of a command that found this id in the document, after or before the end of the period.
    pub(super) fn of(found: Option<&str>, key: &LeaseId, is_over: bool) -> Self {
        match found {
            Some(id) if *id == *key.lock_id && is_over => Self::Released,
            Some(id) if *id == *key.lock_id => Self::Marked,
            Some(id) if id == lock_id::mark_of(&key.lock_id) => Self::Marked,
            _ => Self::Gone { is_over },
        }
    }
}

impl MongoStore {
    /// Replaces the claim by its mark, or releases it if the period is over. Repeating it is harmless: the reply has the
    /// document as it was before, so a repetition finds the mark of the first command.
    pub(super) async fn mark(
        &self,
        key: &LeaseId,
        end: MarkEnd,
        limit: Duration,
    ) -> Result<MarkReply, LockError> {
        let command = doc! {
            "findAndModify": self.locks.name(),
            "query": { "_id": &*key.name },
            "update": [mark_stage(key, end)],
            "fields": { "_id": 0, "lockId": 1, "isOver": is_over(end) },
        };
        let reply = self.write(&self.locks, command, limit).await?;
        // Without a document there is no claim.
        let found = reply.get_document("value").ok();
        let id = found.and_then(|document| document.get_str("lockId").ok());
        let is_over = found.is_some_and(|document| document.get_bool("isOver").unwrap_or(false));
        Ok(MarkReply::of(id, key, is_over))
    }
}

impl MemoryStore {
    /// Replaces the claim by its mark, by the rules of the pipeline.
    pub(crate) fn mark(&self, key: &LeaseId, end: MarkEnd) -> MarkReply {
        self.mark_at(self.now(), key, end)
    }

    /// [`Self::mark`] at the given time of the store's clock.
    pub(crate) fn mark_at(&self, now: Duration, key: &LeaseId, end: MarkEnd) -> MarkReply {
        let (is_over, until) = match end {
            MarkEnd::At(end) => {
                let left = end
                    .timestamp_millis()
                    .saturating_sub(self.date(now).timestamp_millis());
                let left = u64::try_from(left).unwrap_or_default();
                (left == 0, now + Duration::from_millis(left))
            }
            MarkEnd::After(kept) => (false, now + kept),
        };
        let found = self.replace_claim(key, |document| {
            if is_over {
                document.end(now);
            } else {
                document.mark(until);
            }
        });
        MarkReply::of(found.as_deref(), key, is_over)
    }
}

/// The update that replaces a claim by its mark. It changes nothing if the document has another id.
pub(super) fn mark_stage(key: &LeaseId, end: MarkEnd) -> Document {
    let own = doc! { "$eq": ["$lockId", { "$literal": &*key.lock_id }] };
    let if_own = |new: Document, old: &str| doc! { "$cond": [own.clone(), new, old] };
    let or_release = |mark: Bson, released: &str| doc! { "$cond": [is_over(end), released, mark] };
    let until: Bson = match end {
        MarkEnd::At(end) => end.into(),
        MarkEnd::After(kept) => doc! { "$add": ["$$NOW", millis(kept)] }.into(),
    };
    let mark = doc! { "$literal": lock_id::mark_of(&key.lock_id) };
    doc! { "$set": {
        "lockId": if_own(or_release(mark.into(), ""), "$lockId"),
        "expiresAt": if_own(or_release(until, "$$NOW"), "$expiresAt"),
    } }
}

/// Whether the period is over, as an expression of the server.
fn is_over(end: MarkEnd) -> Bson {
    match end {
        MarkEnd::At(end) => doc! { "$gte": ["$$NOW", end] }.into(),
        MarkEnd::After(_) => doc! { "$literal": false }.into(),
    }
}

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::memory::MemoryStore;
use super::mongo::{MongoStore, millis};
use crate::lock_id;
use crate::once::MarkEnd;
use crate::store::LeaseId;
use crate::{FencingToken, LockError};

/// A request that marks a lock as done.
#[derive(Debug, Clone)]
pub(crate) struct MarkRequest {
    /// The claim that has the lock.
    pub(crate) key: LeaseId,
    /// The token in the document of the claim: the last one that was reserved. No other claim on the lock has it.
    pub(crate) token: FencingToken,
    /// Until when the mark stands.
    pub(crate) end: MarkEnd,
}

/// The server's reply to a request that marks a lock as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkReply {
    /// The document has the mark of the claim.
    Marked,
    /// The claim had the lock until the end of the period, and was released after it.
    Released,
    /// The claim does not have the lock, and has left no mark; or the document does not tell that it had the lock until
    /// the end of the period.
    Gone,
}

/// The document of a lock as it was before a request for its mark.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundBefore<'a> {
    pub(super) lock_id: &'a str,
    pub(super) token: FencingToken,
    pub(super) expires_at: DateTime,
    /// Whether the period had ended when the command began.
    pub(super) is_over: bool,
}

impl MarkRequest {
    /// The reply of a command that found this document.
    ///
    /// After the period the claim is released instead, and a repetition finds no claim. That was the release of an earlier
    /// request only if nobody has acquired the lock since (then the token is still that of the claim) and the lease has
    /// ended after the period: others may have ended it before.
    pub(super) fn reply(&self, found: Option<FoundBefore<'_>>) -> MarkReply {
        let Some(found) = found else {
            return MarkReply::Gone;
        };
        let is_own = *found.lock_id == *self.key.lock_id;
        if (is_own && !found.is_over) || found.lock_id == lock_id::mark_of(&self.key.lock_id) {
            return MarkReply::Marked;
        }
        let was_released = match self.end {
            MarkEnd::At(end) => found.lock_id.is_empty() && found.expires_at >= end,
            MarkEnd::After(_) => false,
        };
        if found.token == self.token && (is_own || was_released) {
            MarkReply::Released
        } else {
            MarkReply::Gone
        }
    }
}

impl MongoStore {
    /// Replaces the claim by its mark, or releases it if the period is over. Repeating it is harmless: the reply has the
    /// document as it was before, so a repetition finds what the first command has left.
    pub(super) async fn mark(&self, request: &MarkRequest, limit: Duration) -> Result<MarkReply, LockError> {
        let command = doc! {
            "findAndModify": self.locks.name(),
            "query": { "_id": &*request.key.name },
            "update": [mark_stage(&request.key, request.end)],
            "fields": {
                "_id": 0, "lockId": 1, "fencingToken": 1, "expiresAt": 1, "isOver": is_over(request.end),
            },
        };
        let reply = self.write(&self.locks, command, limit).await?;
        // Without a document, and in a damaged one, there is no claim.
        let found = reply.get_document("value").ok();
        Ok(request.reply(found.and_then(|document| {
            Some(FoundBefore {
                lock_id: document.get_str("lockId").ok()?,
                token: document.get_i64("fencingToken").ok()?.into(),
                expires_at: *document.get_datetime("expiresAt").ok()?,
                is_over: document.get_bool("isOver").ok()?,
            })
        })))
    }
}

impl MemoryStore {
    /// Replaces the claim by its mark, by the rules of the pipeline.
    pub(crate) fn mark(&self, request: &MarkRequest) -> MarkReply {
        self.mark_at(self.now(), request)
    }

    /// [`Self::mark`] at the given time of the store's clock.
    pub(crate) fn mark_at(&self, now: Duration, request: &MarkRequest) -> MarkReply {
        let (is_over, until) = match request.end {
            MarkEnd::At(end) => {
                let left = end
                    .timestamp_millis()
                    .saturating_sub(self.date(now).timestamp_millis());
                let left = u64::try_from(left).unwrap_or_default();
                (left == 0, now + Duration::from_millis(left))
            }
            MarkEnd::After(kept) => (false, now + kept),
        };
        let found = self.replace_claim(&request.key, |document| {
            if is_over {
                document.end(now);
            } else {
                document.mark(until);
            }
        });
        request.reply(found.as_ref().map(|found| FoundBefore {
            lock_id: &found.lock_id,
            token: FencingToken::new(found.token),
            expires_at: self.date(found.expires_at),
            is_over,
        }))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const TOKEN: i64 = 7;
    const END: i64 = 1000;

    fn reply(lock_id: &str, token: i64, expires_at: i64, is_over: bool) -> MarkReply {
        let request = MarkRequest {
            key: LeaseId {
                name: Arc::from("n"),
                lock_id: Arc::from("owner#1"),
            },
            token: FencingToken::new(TOKEN),
            end: MarkEnd::At(DateTime::from_millis(END)),
        };
        request.reply(Some(FoundBefore {
            lock_id,
            token: FencingToken::new(token),
            expires_at: DateTime::from_millis(expires_at),
            is_over,
        }))
    }

    #[test]
    fn the_document_before_the_request_tells_what_became_of_the_claim() {
        use MarkReply::{Gone, Marked, Released};
        for (lock_id, token, expires_at, is_over, expected) in [
            ("owner#1", TOKEN, 900, false, Marked),
            ("done:owner#1", TOKEN, END, false, Marked),
            ("done:owner#1", TOKEN, END, true, Marked),
            ("owner#1", TOKEN, 900, true, Released),
            // A late acquire request has taken effect after the loss of the lease.
            ("owner#1", TOKEN + 1, 1200, true, Gone),
            // An earlier request has released the claim, and perhaps another one has acquired and released the lock.
            ("", TOKEN, END, true, Released),
            ("", TOKEN + 1, END, true, Gone),
            // The claim was ended by force.
            ("", TOKEN, END - 1, true, Gone),
            ("", TOKEN, 900, false, Gone),
            ("other#1", TOKEN + 1, 1200, true, Gone),
            ("done:other#1", TOKEN + 1, END, true, Gone),
        ] {
            let found = reply(lock_id, token, expires_at, is_over);
            assert_eq!(found, expected, "{lock_id:?} {token} {expires_at} {is_over}");
        }
    }
}

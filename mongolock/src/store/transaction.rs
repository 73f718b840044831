use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;

use super::GuardOutcome;
use super::mongo::{MongoStore, claim, millis};
use crate::LockError;
use crate::store::LeaseId;
use crate::store::driver_error;
use crate::timing::COMMAND_LIMIT;

impl MongoStore {
    pub(super) async fn touch(
        &self,
        key: &LeaseId,
        expiry: Option<Duration>,
        session: &mut ClientSession,
    ) -> Result<GuardOutcome, LockError> {
        let namespace = self.locks.namespace();
        // A session works with the client that it came from only.
        let locks = session
            .client()
            .database(&namespace.db)
            .collection::<Document>(&namespace.coll);
        let touched = locks
            .update_one(claim(key), vec![touch_stage(expiry)])
            .session(session)
            .await;
        match touched {
            Ok(touched) if touched.matched_count > 0 => Ok(GuardOutcome::Guarded),
            Ok(_) if self.stands(key).await? => Ok(GuardOutcome::NotVisible),
            Err(error) if !driver_error::is_conflict(&error) => Err(error.into()),
            // The document has changed since the transaction began. If not by another holder, by a renewal; if that
            // cannot be learned, the conflict is what the caller can act on.
            Err(error) if self.stands(key).await.unwrap_or(true) => Err(error.into()),
            Ok(_) | Err(_) => Ok(GuardOutcome::Lost),
        }
    }

    /// Reads what the primary has now, confirmed by the others or not: whoever may have the lock counts.
    async fn stands(&self, key: &LeaseId) -> Result<bool, LockError> {
        let found = self
            .locks
            .find_one(claim(key))
            .projection(doc! { "_id": 1 })
            .read_concern(ReadConcern::local())
            .max_time(COMMAND_LIMIT)
            .await?;
        Ok(found.is_some())
    }
}

/// Always a change: a write that leaves the document as it was would not be in conflict with another's. Two renewals of
/// one millisecond would set the same date, hence the millisecond more; without a renewal that millisecond is all.
fn touch_stage(expiry: Option<Duration>) -> Document {
    let later = doc! { "$add": ["$expiresAt", 1_i64] };
    let end: Bson = match expiry {
        Some(expiry) => doc! { "$max": [{ "$add": ["$$NOW", millis(expiry)] }, later] }.into(),
        None => later.into(),
    };
    doc! { "$set": { "expiresAt": end } }
}

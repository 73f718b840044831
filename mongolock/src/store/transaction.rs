//! The statement of a transaction that makes sure that it commits only under a lock.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::{Document, doc};

use super::Store;
use super::look::{ALL, Looked};
use super::mongo::MongoStore;
use super::mongo::encoder::{by_server, one_of};
use crate::duration::millis;
use crate::error::meaning::Meaning;
use crate::meter::CommandKind;
use crate::protocol::{LockId, Name, Sight, Then, Until};
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, permit_id};

/// The name of a lock and the id of a claim on it, as in the document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId {
    pub(crate) name: Name,
    pub(crate) lock_id: LockId,
}

/// The change that the guarding statement of a commit makes to the claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GuardChange {
    /// It keeps the claim.
    Keep,
    /// It renews the claim for this time.
    Renew(Duration),
    /// It replaces the claim with the mark that its work is done, or releases it if the period is over.
    Mark(Until),
}

/// The result of the guarding statement of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GuardOutcome {
    /// The transaction has changed the documents of the claims: no other client can change them until it ends.
    Guarded,
    /// A claim no longer has its lock.
    Lost,
    /// The claims have their locks, but not in the snapshot of the transaction.
    NotVisible,
}

impl Store {
    /// Guards a commit: it changes the documents of these claims, those of one lease, within the session's transaction. If
    /// that fails, a second command finds the reason. Without claims it changes nothing, and only begins the transaction
    /// at the server.
    pub(crate) async fn guard(
        &self,
        keys: &[LeaseId],
        change: GuardChange,
        session: &mut ClientSession,
    ) -> Result<GuardOutcome, LockError> {
        let Some(store) = self.mongo() else {
            return Err(LockError::NoTransaction {
                name: permit_id::shown(&keys[0].name).to_owned(),
                reason: "the lock is in memory, and only MongoDB has transactions".to_owned(),
            });
        };
        // A session works only with its own client.
        let namespace = store.locks.namespace();
        let database = session.client().database(&namespace.db);
        let locks = database.collection::<Document>(&namespace.coll);
        let update = locks.update_many(claimed_by(keys), vec![guard_stage(change)]);
        let updating = pin!(async { Ok(update.session(session).await?) });
        match store.pass(CommandKind::Commit, updating).await {
            Ok(updated) if updated.matched_count == keys.len() as u64 => Ok(GuardOutcome::Guarded),
            Ok(_) if store.have_locks(keys).await? => Ok(GuardOutcome::NotVisible),
            Err(error) if error.meaning() != Meaning::Conflict => Err(error),
            // A document has changed since the transaction began, by a renewal or by another holder. If the reason
            // cannot be found, the caller gets the conflict, after which it can repeat the transaction.
            Err(error) if store.have_locks(keys).await.unwrap_or(true) => Err(error),
            Ok(_) | Err(_) => Ok(GuardOutcome::Lost),
        }
    }
}

impl MongoStore {
    /// Whether all claims have their locks. This reads the present state of the primary, even if no majority has
    /// confirmed it: a claim that may have the lock counts as a holder.
    async fn have_locks(&self, keys: &[LeaseId]) -> Result<bool, LockError> {
        let names = Looked::Names(keys.iter().map(|key| Arc::clone(&key.name)).collect());
        let found = self
            .find(CommandKind::Commit, &names, None, ALL, COMMAND_LIMIT)
            .await?;
        // The id of a claim stands in no document of another one.
        let has = |sight: &Sight| keys.iter().any(|key| sight.has(&key.lock_id));
        Ok(found.iter().filter(|(_, sight)| has(sight)).count() == keys.len())
    }
}

/// The query for the documents of these claims, if the claims have their locks. Each id occurs in the documents of one
/// claim only, so names and ids need not be matched in pairs. With a single condition a router finds the shard.
fn claimed_by(keys: &[LeaseId]) -> Document {
    let names = keys.iter().map(|key| &*key.name).collect();
    let ids = keys.iter().map(|key| &*key.lock_id).collect();
    doc! { "_id": one_of(names), "lockId": one_of(ids) }
}

/// The update of the guarding statement. It always changes a document, because a write without a change would not
/// conflict with another one. Two renewals within one millisecond would set the same date, so the update adds a
/// millisecond; without a renewal that is the only change.
fn guard_stage(change: GuardChange) -> Document {
    let later = doc! { "$add": ["$expiresAt", 1_i64] };
    let set = match change {
        GuardChange::Keep => doc! { "expiresAt": later },
        GuardChange::Renew(expiry) => {
            doc! { "expiresAt": { "$max": [by_server().later(millis(expiry)), later] } }
        }
        // Work that may succeed only once has one name.
        GuardChange::Mark(until) => by_server().changed(&Then::Mark { until }),
    };
    doc! { "$set": set }
}

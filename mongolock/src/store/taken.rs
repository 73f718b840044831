use mongodb::bson::{DateTime, Document, doc};

use super::admin::{begins_with, conditions, seen};
use super::mongo::MongoStore;
use crate::lock_id::KEPT_PREFIX;
use crate::store::info::Seen;
use crate::{LockError, LockFilter};

/// A document that names a holder or has a mark, at the time of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TakenLock {
    pub(crate) id: String,
    pub(crate) lock_id: String,
    pub(crate) acquired_at: DateTime,
    pub(crate) expires_at: DateTime,
    pub(crate) token: i64,
    /// The server's time of the read.
    pub(crate) read_at: DateTime,
}

impl TakenLock {
    /// Whether the lease, or the period of the mark, was over at the time of the read.
    pub(crate) fn is_over(&self) -> bool {
        self.expires_at <= self.read_at
    }
}

impl From<Seen<'_>> for TakenLock {
    fn from(seen: Seen<'_>) -> Self {
        Self {
            id: seen.name.to_owned(),
            lock_id: seen.lock_id.to_owned(),
            acquired_at: seen.acquired_at,
            expires_at: seen.expires_at,
            token: seen.token,
            read_at: seen.now,
        }
    }
}

/// What a read has found: a taken lock, or the `_id` of a document that cannot be read as a lock.
pub(crate) type TakenOrDamaged = Result<TakenLock, String>;

impl MongoStore {
    /// The taken locks that meet the name and the prefix of a filter, or those of them that have one of these `_id`s.
    pub(crate) async fn taken_locks(
        &self,
        filter: &LockFilter,
        ids: Option<&[String]>,
    ) -> Result<Vec<TakenOrDamaged>, LockError> {
        let mut query = doc! { "lockId": { "$ne": "", "$not": begins_with(&[KEPT_PREFIX]) } };
        if let Some(ids) = ids {
            query.insert("_id", doc! { "$in": ids });
        }
        let query = doc! { "$and": [query, conditions(&filter.of_names())] };
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (documents, last) = self.documents(query.clone(), after.as_deref(), None).await?;
            found.extend(documents.iter().map(taken));
            match last {
                Some(last) => after = Some(last),
                None => return Ok(found),
            }
        }
    }
}

fn taken(document: &Document) -> TakenOrDamaged {
    let id = document.get_str("_id").unwrap_or_default();
    seen(id, document).map(TakenLock::from).map_err(|_| id.to_owned())
}

use mongodb::bson::DateTime;

use super::MemoryStore;
use crate::store::taken::{TakenLock, TakenOrDamaged};
use crate::sync::lock;
use crate::{LockFilter, lock_id, permit_id};

impl MemoryStore {
    /// The taken locks that meet the name and the prefix of a filter, or those of them that have one of these ids.
    pub(crate) fn taken_locks(&self, filter: &LockFilter, ids: Option<&[String]>) -> Vec<TakenOrDamaged> {
        let read_at = self.server_time();
        let documents = lock(&self.documents);
        let wanted = documents.iter().filter(|(id, document)| {
            !lock_id::taken_by(&document.lock_id).is_empty()
                && filter.admits_name(permit_id::shown(id))
                && ids.is_none_or(|ids| ids.iter().any(|own| **own == ***id))
        });
        let taken = wanted.map(|(id, document)| TakenLock {
            id: id.to_string(),
            lock_id: document.lock_id.to_string(),
            acquired_at: self.date(document.acquired_at),
            expires_at: self.date(document.expires_at),
            token: document.token,
            read_at,
        });
        let mut taken: Vec<TakenOrDamaged> = taken.map(Ok).collect();
        taken.sort_by(|one, other| id(one).cmp(id(other)));
        taken
    }

    /// The time of the store's clock.
    pub(crate) fn server_time(&self) -> DateTime {
        self.date(self.now())
    }
}

fn id(taken: &TakenOrDamaged) -> &str {
    match taken {
        Ok(lock) => &lock.id,
        Err(id) => id,
    }
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::sync::broadcast;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Found, Looked};
use crate::duration::millis;
use crate::options::DEFAULT_RETENTION;
use crate::permit_id;
use crate::protocol::{Document, Ms, Name, News, Reply, Row, RowOrder, Sight, Then, Value};
use crate::sync::lock;

/// The protocol without a server: for tests of programs that use locks.
pub(crate) struct MemoryStore {
    /// The time at which the store's clock started.
    start: Instant,
    /// The time of the wall clock at the start, at which the store's clock begins.
    started_at: Ms,
    /// The id of the store in the handles of its detached leases, which distinguishes it from all other stores.
    pub(super) id: String,
    documents: Mutex<Documents>,
    /// The changes of locks, for the waiters.
    pub(super) events: broadcast::Sender<News>,
}

/// All documents of the store.
struct Documents {
    by_name: BTreeMap<Name, Document>,
    /// The time for which a document is kept after the end of its lease.
    retention: Ms,
    /// The time of the next sweep.
    next_sweep: Ms,
    /// The greatest fencing token of all deleted documents. Under contention tokens are reserved in blocks and can run
    /// ahead of the clock, so that the clock alone would not keep them rising after a deletion.
    greatest_deleted_token: i64,
}

impl Documents {
    /// Deletes the documents of unused locks, as MongoDB's TTL index does. It looks at all of them once in a retention, so that each
    /// document is deleted between one and two retentions after the end of its lease.
    fn sweep(&mut self, now: Ms) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + self.retention;
        let latest = now - self.retention;
        self.by_name.retain(|_, document| {
            let is_kept = document.expires_at.date().is_none_or(|end| end > latest);
            if !is_kept {
                let token = document.token.long().unwrap_or_default();
                self.greatest_deleted_token = self.greatest_deleted_token.max(token);
            }
            is_kept
        });
    }
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            started_at: DateTime::now().timestamp_millis(),
            id: format!("memory {}", Uuid::new_v4()),
            documents: Mutex::new(Documents {
                by_name: BTreeMap::new(),
                retention: millis(DEFAULT_RETENTION),
                next_sweep: 0,
                greatest_deleted_token: 0,
            }),
            events: broadcast::Sender::new(1024),
        }
    }

    /// Keeps the documents of unused locks for this time.
    pub(crate) fn set_retention(&self, period: Duration) {
        let mut documents = lock(&self.documents);
        (documents.retention, documents.next_sweep) = (millis(period), 0);
    }

    /// Runs these rows, see [`apply`].
    pub(super) fn run(&self, rows: &[Row], order: RowOrder) -> Vec<Reply> {
        let (now, mut has_ended) = (self.now(), false);
        let run = |row: &Row| {
            if has_ended {
                let sight = self.sight(now, &row.name);
                return Reply {
                    sight,
                    ..Reply::UNSEEN
                };
            }
            let reply = self.run_row(now, row);
            has_ended = order == RowOrder::StopAtMiss && row.is_missed(&reply);
            reply
        };
        rows.iter().map(run).collect()
    }

    /// Runs a row at this time of the store's clock, which a command reads when it begins.
    pub(crate) fn run_row(&self, now: Ms, row: &Row) -> Reply {
        let documents = &mut *lock(&self.documents);
        if row.may_insert() {
            documents.sweep(now);
        }
        let (by_name, deleted) = (&mut documents.by_name, documents.greatest_deleted_token);
        let document = match by_name.get_mut(&row.name) {
            Some(document) => document,
            None if row.may_insert() => by_name.entry(Arc::clone(&row.name)).or_insert(Document {
                token: Value::Long(deleted),
                ..Document::default()
            }),
            None => return Reply::UNSEEN,
        };
        let former_id = document.lock_id.clone();
        // No document here is damaged.
        let is_applied = row.apply(document, now).unwrap_or_default();
        let sight = Some(Sight {
            document: document.clone(),
            now: Some(now),
        });
        // A claim can acquire the lock again after its lease has ended.
        let is_acquired = is_applied && matches!(row.then, Then::Claim { .. });
        let is_news = is_acquired || former_id != document.lock_id;
        if is_news && self.events.receiver_count() > 0 {
            let (name, sight) = (Arc::clone(&row.name), sight.clone());
            // There may be no waiter left.
            let _ = self.events.send(News { name, sight });
        }
        Reply {
            is_applied: Some(is_applied),
            sight,
        }
    }

    /// What the document of a lock says.
    pub(crate) fn sight(&self, now: Ms, name: &str) -> Option<Sight> {
        let document = lock(&self.documents).by_name.get(name)?.clone();
        let now = Some(now);
        Some(Sight { document, now })
    }

    /// A part of these documents.
    pub(crate) fn find(&self, looked: &Looked, after: Option<&str>, most: u32) -> Found {
        let now = Some(self.now());
        let by_name = &lock(&self.documents).by_name;
        let mut found: Vec<(&Name, &Document)> = match looked {
            Looked::Names(names) if !names.iter().any(|name| permit_id::is_group(name)) => {
                let found = names.iter().filter_map(|name| by_name.get_key_value(name));
                found.collect()
            }
            _ => by_name.iter().collect(),
        };
        found.sort_by_key(|(name, _)| *name);
        let rest = found.into_iter().filter(|(name, _)| Some(&***name) > after);
        let seen = rest.map(|(name, document)| {
            let document = document.clone();
            (Arc::clone(name), Sight { document, now })
        });
        let wanted = seen.filter(|(name, sight)| looked.admits(name, sight));
        wanted.take(most as usize).collect()
    }

    /// The time of the store's clock in whole milliseconds, as MongoDB keeps its dates.
    pub(crate) fn now(&self) -> Ms {
        self.started_at.saturating_add(millis(self.start.elapsed()))
    }
}

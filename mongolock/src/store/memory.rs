mod retention;
#[cfg(test)]
mod simulated;

use std::collections::BTreeMap;
#[cfg(test)]
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::sync::broadcast;
use tokio::time::Instant;
use uuid::Uuid;

use self::retention::Retention;
use super::error::corrupt;
use super::look::number_of;
use super::mongo::millis;
use super::{Looked, Selected};
use crate::LockError;
use crate::options::DEFAULT_RETENTION;
use crate::protocol::{Document, Ms, Name, News, Order, Reply, Row, Sight, Then, apply};
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
    /// The milliseconds by which the simulation has moved the clock.
    #[cfg(test)]
    jumped: AtomicI64,
}

struct Documents {
    by_name: BTreeMap<Name, Document>,
    retention: Retention,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            started_at: DateTime::now().timestamp_millis(),
            id: format!("memory {}", Uuid::new_v4()),
            documents: Mutex::new(Documents {
                by_name: BTreeMap::new(),
                retention: Retention::new(millis(DEFAULT_RETENTION)),
            }),
            events: broadcast::Sender::new(1024),
            #[cfg(test)]
            jumped: AtomicI64::new(0),
        }
    }

    /// Keeps the documents of unused locks for this time.
    pub(crate) fn set_retention(&self, period: Duration) {
        lock(&self.documents).retention.set_period(millis(period));
    }

    /// Runs these rows, see [`apply`].
    pub(crate) fn run_at_once(&self, rows: &[Row], order: Order) -> Vec<Result<Reply, LockError>> {
        let (now, mut has_ended) = (self.now(), false);
        let run = |row: &Row| {
            if has_ended {
                return Ok(self.read(now, &row.name));
            }
            let reply = self.run_row(now, row);
            let is_missed = reply.as_ref().map_or(true, |reply| row.is_missed(reply));
            has_ended = order == Order::StopAtMiss && is_missed;
            reply
        };
        rows.iter().map(run).collect()
    }

    /// Runs a row at this time of the store's clock, which a command reads when it begins.
    pub(crate) fn run_row(&self, now: Ms, row: &Row) -> Result<Reply, LockError> {
        let mut documents = lock(&self.documents);
        let Documents { by_name, retention } = &mut *documents;
        if row.may_insert() {
            retention.sweep(by_name, now);
        }
        let stored = by_name.get_mut(&row.name);
        let before = stored.as_deref().cloned();
        let mut document = before.or_else(|| row.may_insert().then(|| retention.first()));
        let is_applied = apply(row, &mut document, now)
            .map_err(|_| corrupt(&row.name, "a field has the wrong type".into()))?;
        let Some(document) = document else {
            return Ok(Reply::UNSEEN);
        };
        let sight = Sight {
            document: document.clone(),
            now: Some(now),
        };
        if is_applied {
            // A claim can acquire the lock again after its lease has ended.
            let is_acquired = matches!(row.then, Then::Claim { .. });
            let id = stored.as_ref().map(|stored| &stored.lock_id);
            if is_acquired || id != Some(&document.lock_id) {
                self.report(&row.name, Some(&sight));
            }
            if let Some(stored) = stored {
                *stored = document;
            } else {
                retention.add(&row.name, now);
                by_name.insert(Arc::clone(&row.name), document);
            }
        }
        Ok(Reply {
            is_applied: Some(is_applied),
            sight: Some(sight),
        })
    }

    /// Reads the document of a lock.
    pub(crate) fn read(&self, now: Ms, name: &str) -> Reply {
        Reply {
            is_applied: Some(false),
            sight: self.sight(now, name),
        }
    }

    pub(crate) fn sight(&self, now: Ms, name: &str) -> Option<Sight> {
        let documents = lock(&self.documents);
        let document = documents.by_name.get(name)?.clone();
        Some(Sight {
            document,
            now: Some(now),
        })
    }

    pub(crate) fn look(&self, looked: Looked<'_>) -> Vec<(Name, Sight)> {
        match looked {
            Looked::Names(names) => {
                let now = self.now();
                let seen = |name: &Name| Some((Arc::clone(name), self.sight(now, name)?));
                names.iter().filter_map(seen).collect()
            }
            Looked::Permits(semaphore) => self.found(|name| number_of(name, semaphore).is_some()),
        }
    }

    /// The result of an operator's read, as one page, because the documents are in memory anyway.
    pub(super) fn select(
        &self,
        selected: Selected<'_>,
        _after: Option<&str>,
        limit: Option<u32>,
    ) -> (Vec<(Name, Sight)>, Option<Name>) {
        let mut found = self.found(|_| true);
        found.retain(|(name, sight)| selected.admits(name, sight));
        found.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        (found, None)
    }

    /// The documents with such names, in the order of their names.
    fn found(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(Name, Sight)> {
        let now = Some(self.now());
        let documents = lock(&self.documents);
        let found = documents.by_name.iter().filter(|(name, _)| is_meant(name));
        let sight = |document: &Document| Sight {
            document: document.clone(),
            now,
        };
        found
            .map(|(name, document)| (Arc::clone(name), sight(document)))
            .collect()
    }

    /// Reports an event to the waiters; it is no error if there are none.
    fn report(&self, name: &Name, sight: Option<&Sight>) {
        if self.events.receiver_count() > 0 {
            // The last receiver may have been dropped in the meantime.
            let _ = self.events.send(News {
                name: Arc::clone(name),
                sight: sight.cloned(),
            });
        }
    }

    /// The time of the store's clock.
    pub(crate) fn server_time(&self) -> DateTime {
        DateTime::from_millis(self.now())
    }

    /// The time of the store's clock in whole milliseconds, as MongoDB keeps its dates.
    pub(crate) fn now(&self) -> Ms {
        let now = self.started_at.saturating_add(millis(self.start.elapsed()));
        #[cfg(test)]
        let now = now.saturating_add(self.jumped.load(Relaxed));
        now
    }
}

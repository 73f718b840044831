//! The reports in MongoDB, and the locks under which they are changed.

use std::time::{Duration, Instant};

use mongodb::bson::doc;
use mongodb::{Collection, Database};
use mongolock::{FencedExt, FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use serde::{Deserialize, Serialize};

use crate::error::{ServiceError, millis};

/// One report, a document that is read and written as a whole.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    #[serde(rename = "_id")]
    pub(crate) id: u32,
    /// The content: its changes, in the order of the writes.
    pub(crate) revisions: Vec<Revision>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Revision {
    pub(crate) token: FencingToken,
    pub(crate) instance: String,
}

/// A requested change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// The time of the request, at which the wait for the lock begins.
    pub(crate) requested: Instant,
    /// The time between reading the report and writing it back.
    pub(crate) duration: Duration,
}

/// A change that was made, as the service answers it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(crate) id: u32,
    /// The number of changes of the report, including this one.
    pub(crate) revision: usize,
    pub(crate) token: FencingToken,
    pub(crate) instance: String,
    /// From the request to the lock.
    pub(crate) waited_ms: u64,
    /// From the lock to the end of the work.
    pub(crate) held_ms: u64,
}

/// What the handlers share. It has its own provider: the tests of a service pass `LockProvider::in_memory()`, and two of
/// them in one process do not share locks.
#[derive(Debug, Clone)]
pub(crate) struct Reports {
    collection: Collection<Report>,
    locks: LockProvider,
}

impl Reports {
    pub(crate) fn new(database: &Database, locks: LockProvider) -> Self {
        Self {
            collection: database.collection("reports"),
            locks,
        }
    }

    /// The whole use of mongolock: across all instances, one change of a report at a time. A request that does not get
    /// the lock within the provider's `acquire_timeout` is refused.
    ///
    /// When a client closes its connection, the server drops the handler and with it this call, at whichever await point
    /// it is. Nothing stays behind: the call leaves the queue, or its lock is released.
    #[distributed_lock(name = "report:<id>", expiry = "10s", provider = self.locks)]
    pub(crate) async fn change(
        &self,
        id: u32,
        work: Work,
        #[lock] lock: LockContext,
    ) -> Result<Changed, ServiceError> {
        self.read_work_write(id, work, lock).await
    }

    /// The same for a request that is refused instead of waiting.
    #[distributed_lock(name = "report:<id>", expiry = "10s", provider = self.locks, on_busy = "fail")]
    pub(crate) async fn change_if_free(
        &self,
        id: u32,
        work: Work,
        #[lock] lock: LockContext,
    ) -> Result<Changed, ServiceError> {
        self.read_work_write(id, work, lock).await
    }

    /// Loses updates if two of these run at the same time for one report.
    async fn read_work_write(&self, id: u32, work: Work, lock: LockContext) -> Result<Changed, ServiceError> {
        // The body begins after the lock is acquired and ends before it is released. The spans `mongolock.acquire` and
        // `mongolock.hold` pass the same times to a subscriber of `tracing`, without any code here.
        let (waited, begun) = (work.requested.elapsed(), Instant::now());
        let (token, instance) = (lock.fencing_token(), lock.owner().to_owned());

        let mut report = self.read(id).await?.unwrap_or_else(|| Report {
            id,
            revisions: Vec::new(),
        });
        tokio::time::sleep(work.duration).await;
        report.revisions.push(Revision {
            token,
            instance: instance.clone(),
        });
        self.replace(&report, token).await?;

        Ok(Changed {
            id,
            revision: report.revisions.len(),
            token,
            instance,
            waited_ms: millis(waited),
            held_ms: millis(begun.elapsed()),
        })
    }

    /// Needs no lock: the server reads one document as a whole.
    pub(crate) async fn read(&self, id: u32) -> Result<Option<Report>, ServiceError> {
        let report = self.collection.find_one(doc! { "_id": id }).await;
        report.map_err(ServiceError::Read)
    }

    /// Rejects a stale holder, one that was paused for longer than its lease: the report has a greater token then.
    async fn replace(&self, report: &Report, token: FencingToken) -> Result<(), ServiceError> {
        let reports = self.collection.fenced(token);
        let same = doc! { "_id": report.id };
        match reports.replace_one(same, report).upsert(true).await {
            Ok(_) => Ok(()),
            Err(LockError::Mongo(error)) => Err(ServiceError::Write(error)),
            Err(other) => Err(ServiceError::Lock(other)),
        }
    }
}

//! The reports in MongoDB, and the locks under which they are changed.

use std::time::{Duration, Instant};

use mongodb::bson::doc;
use mongodb::{Collection, Database};
use mongolock::{FencedExt, FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use serde::{Deserialize, Serialize};

use crate::answer::{Changed, millis};
use crate::error::ServiceError;

/// One report, a document that is read and written as a whole.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    #[serde(rename = "_id")]
    pub(crate) id: u32,
    /// The content: who has changed it, in the order of the writes.
    pub(crate) revisions: Vec<Revision>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Revision {
    pub(crate) token: FencingToken,
    pub(crate) instance: String,
}

/// A change that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// When; the wait for the lock is counted from here.
    pub(crate) asked: Instant,
    /// How long it takes, between reading the report and writing it back.
    pub(crate) takes: Duration,
}

impl Report {
    fn new(id: u32) -> Self {
        Self {
            id,
            revisions: Vec::new(),
        }
    }
}

/// What the handlers share. It carries its provider with it: the tests of a service give it
/// `LockProvider::in_memory()`, and two of them in one process do not meet.
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

    /// The whole use of mongolock: one change of a report at a time, in all instances together. Whoever does not get
    /// the lock within the provider's `acquire_timeout` is refused.
    ///
    /// When a client hangs up, the server drops the handler and with it this call, wherever it is. Nothing stays
    /// behind: the place in the queue is given up, or the lock is released.
    #[distributed_lock(name = "report:<id>", expiry = "10s", provider = self.locks)]
    pub(crate) async fn change(&self, id: u32, work: Work) -> Result<Changed, ServiceError> {
        self.read_work_write(id, work).await
    }

    /// The same for a request that is to be refused rather than wait.
    #[distributed_lock(name = "report:<id>", expiry = "10s", provider = self.locks, on_busy = "fail")]
    pub(crate) async fn change_if_free(&self, id: u32, work: Work) -> Result<Changed, ServiceError> {
        self.read_work_write(id, work).await
    }

    /// Loses updates when two of these run at the same time for one report.
    async fn read_work_write(&self, id: u32, work: Work) -> Result<Changed, ServiceError> {
        // The body begins when the lock is there and ends before it is given back. The spans `mongolock.acquire` and
        // `mongolock.hold` tell a subscriber of `tracing` the same, without a line of code here.
        let (waited, begun) = (work.asked.elapsed(), Instant::now());
        let lock = LockContext::current().expect("the callers are annotated");
        let (token, instance) = (lock.fencing_token(), lock.owner().to_owned());

        let mut report = self.read(id).await?.unwrap_or_else(|| Report::new(id));
        tokio::time::sleep(work.takes).await;
        report.revisions.push(Revision {
            token,
            instance: instance.clone(),
        });
        self.replace(&report, &lock).await?;

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

    /// A holder that was paused beyond its lease comes too late here: the report has seen a later token.
    async fn replace(&self, report: &Report, lock: &LockContext) -> Result<(), ServiceError> {
        let reports = self.collection.fenced(lock.fencing_token());
        let written = reports
            .replace_one(doc! { "_id": report.id }, report)
            .upsert(true)
            .await;
        written.map(drop).map_err(|error| match error {
            LockError::Stale { .. } => ServiceError::TooLate {
                lock: lock.name().to_owned(),
            },
            LockError::Mongo(error) => ServiceError::Write(error),
            other => ServiceError::Lock(other),
        })
    }
}

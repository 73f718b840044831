use std::collections::BTreeSet;
use std::sync::Arc;

use mongodb::bson::{Document, doc};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::admin::literally;
use super::memory::MemoryStore;
use super::mongo::MongoStore;
use super::mongo::fields::sight;
use super::stream_reader::{Begin, StreamReader, Wanted};
use crate::protocol::News;
use crate::timing::STREAM_AWAIT;
use crate::{LockError, permit_id};

/// The locks that a stream reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamFilter {
    All,
    Names(Arc<BTreeSet<Arc<str>>>),
}

impl StreamFilter {
    pub(crate) fn admits(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.contains(permit_id::awaited(name)),
        }
    }
}

/// A stream of the changes of locks.
pub(crate) struct LockStream {
    source: Source,
    /// The locks that the stream reports.
    filter: StreamFilter,
}

enum Source {
    /// A change stream that the server filters: a process that waits for few locks then costs little, however many
    /// other locks are released.
    Mongo(Box<StreamReader>),
    Memory(Receiver<News>),
    /// The events that the network of the simulation delivers; it ends with the stream.
    #[cfg(test)]
    Simulated(tokio::sync::mpsc::UnboundedReceiver<Result<News, LockError>>),
}

impl LockStream {
    /// The next event, or `None` if there was none for a while. Each call sends at most one request of the stream and must
    /// not be dropped, which would close the connection.
    pub(crate) async fn next(&mut self) -> Result<Option<News>, LockError> {
        let event = match &mut self.source {
            Source::Mongo(reader) => return Ok(reader.next().await?.as_ref().and_then(news)),
            Source::Memory(events) => match timeout(STREAM_AWAIT, events.recv()).await {
                Ok(Ok(event)) => Some(event),
                // A wake-up may be lost: waiters poll as well.
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) | Err(_) => None,
            },
            #[cfg(test)]
            Source::Simulated(events) => match timeout(STREAM_AWAIT, events.recv()).await {
                Ok(event) => Some(event.ok_or_else(|| crate::error::meaning::Meaning::StreamEnded.error())??),
                Err(_) => None,
            },
        };
        Ok(event.filter(|event| self.filter.admits(&event.name)))
    }
}

/// The change of a lock in an event of the server.
fn news(event: &Document) -> Option<News> {
    let name = event.get_document("documentKey").ok()?.get_str("_id").ok()?;
    let is_deleted = event.get_str("operationType").ok()? == "delete";
    let document = event.get_document("fullDocument").ok().filter(|_| !is_deleted);
    Some(News {
        name: Arc::from(name),
        sight: document.map(sight),
    })
}

/// The stages of the server for releases, deletions and acquisitions of these locks. Renewals are not sent: they change
/// only the end of the lease. An acquisition comes as an insert, an update or a replacement.
fn pipeline(filter: &StreamFilter) -> [Document; 2] {
    let mut matching = doc! { "$or": [
        { "operationType": { "$in": ["delete", "insert", "replace"] } },
        { "operationType": "update", "updateDescription.updatedFields.lockId": { "$exists": true } },
    ] };
    if let StreamFilter::Names(names) = filter {
        let (groups, names): (Vec<&str>, Vec<&str>) = names
            .iter()
            .map(AsRef::as_ref)
            .partition(|name| permit_id::is_group(name));
        let mut ids = vec![doc! { "documentKey._id": { "$in": names } }];
        // Any permit of the semaphore.
        let of_group =
            |group: &str| doc! { "documentKey._id": { "$regex": format!("^{}", literally(group)) } };
        ids.extend(groups.into_iter().map(of_group));
        match &ids[..] {
            [only] => matching.extend(only.clone()),
            _ => drop(matching.insert("$and", vec![doc! { "$or": ids }])),
        }
    }
    // MongoDB 4.4 supports only two operands here. Its events have no wall-clock time; only the second of `clusterTime`
    // is known.
    let either = |field: &str| doc! { "$ifNull": [format!("$fullDocument.{field}"), format!("$updateDescription.updatedFields.{field}")] };
    let kept = doc! {
        "operationType": 1, "documentKey": 1, "clusterTime": 1, "fullDocument": {
            "lockId": either("lockId"), "acquiredAt": either("acquiredAt"), "expiresAt": either("expiresAt"),
            "fencingToken": either("fencingToken"), "now": "$wallTime",
        },
    };
    [doc! { "$match": matching }, doc! { "$project": kept }]
}

impl MongoStore {
    pub(super) async fn watch(&self, filter: StreamFilter) -> Result<LockStream, LockError> {
        let wanted = Wanted {
            pipeline: pipeline(&filter).to_vec(),
            reply_await: STREAM_AWAIT,
        };
        let opening = self.read_stream(&self.locks, self.ends.clone(), wanted, Begin::Now);
        let source = Source::Mongo(Box::new(opening.await?));
        Ok(LockStream { source, filter })
    }
}

#[cfg(test)]
impl LockStream {
    pub(crate) fn simulated(
        events: tokio::sync::mpsc::UnboundedReceiver<Result<News, LockError>>,
        filter: StreamFilter,
    ) -> Self {
        let source = Source::Simulated(events);
        Self { source, filter }
    }
}

impl MemoryStore {
    pub(crate) fn watch(&self, filter: StreamFilter) -> LockStream {
        let source = Source::Memory(self.events.subscribe());
        LockStream { source, filter }
    }
}

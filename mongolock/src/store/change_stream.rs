use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use mongodb::Collection;
use mongodb::bson::{Bson, Document, Timestamp, doc};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::admin::literally;
use super::memory::MemoryStore;
use super::mongo::fields::sight;
use super::mongo::{MongoStore, millis, run};
use super::stream_reader::{Begin, StreamReader, Wanted};
use crate::meter::CommandKind;
use crate::protocol::News;
use crate::timing::{COMMAND_LIMIT, STREAM_AWAIT};
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

/// A stream of what happens to locks.
pub(crate) struct LockStream {
    source: Source,
    /// The locks that the stream reports at present.
    filter: StreamFilter,
}

enum Source {
    Mongo(Box<MongoStream>),
    Memory(Receiver<News>),
    #[cfg(test)]
    Simulated(crate::simulation::Hints),
}

/// A change stream of the server, which filters it: a process that waits for few locks costs little then, however many
/// others are released.
struct MongoStream {
    reader: StreamReader,
    /// The filter that the stream shall have, if it is another one.
    switch: Option<Switch>,
}

/// A change of the filter. The server has no command for it: another stream is opened, which begins at a time up to which
/// the present one is read before. (A position fits only the pipeline that it comes from.)
struct Switch {
    filter: StreamFilter,
    /// A time of the server that a majority has reached.
    at: Timestamp,
}

impl LockStream {
    #[cfg(test)]
    pub(crate) fn simulated(hints: crate::simulation::Hints, filter: StreamFilter) -> Self {
        let source = Source::Simulated(hints);
        Self { source, filter }
    }

    /// The locks that the stream reports at present.
    pub(crate) fn filter(&self) -> &StreamFilter {
        &self.filter
    }

    /// Whether the server pays for the stream.
    pub(crate) fn costs_the_server(&self) -> bool {
        !matches!(self.source, Source::Memory(_))
    }

    /// Whether the stream is about to have another filter.
    pub(crate) fn is_switching(&self) -> bool {
        matches!(&self.source, Source::Mongo(stream) if stream.switch.is_some())
    }

    /// The next event, or `None` if there was none for a while. Each call sends at most one request of the stream and must
    /// not be dropped, which would close the connection; a change of the filter takes effect between two of them.
    pub(crate) async fn next(&mut self) -> Result<Option<News>, LockError> {
        let event = match &mut self.source {
            Source::Mongo(stream) => {
                let (event, switched) = stream.next().await?;
                if let Some(filter) = switched {
                    self.filter = filter;
                }
                return Ok(event);
            }
            Source::Memory(events) => match timeout(STREAM_AWAIT, events.recv()).await {
                Ok(Ok(event)) => Some(event),
                // A wake-up may be lost: waiters poll as well.
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) | Err(_) => None,
            },
            #[cfg(test)]
            Source::Simulated(hints) => hints.next(&self.filter).await?,
        };
        Ok(event.filter(|event| self.filter.admits(&event.name)))
    }

    /// Has the stream report other locks from some time soon on. No event of a lock that both filters admit is missed. After an error the filter stays as it is.
    pub(crate) async fn switch_to(&mut self, filter: StreamFilter) -> Result<(), LockError> {
        match &mut self.source {
            Source::Mongo(stream) => return stream.begin_switch(filter).await,
            Source::Memory(_) => {}
            #[cfg(test)]
            Source::Simulated(hints) => hints.switch()?,
        }
        self.filter = filter;
        Ok(())
    }
}

impl MongoStream {
    /// The next event, and the filter that the stream has from now on if that has changed.
    async fn next(&mut self) -> Result<(Option<News>, Option<StreamFilter>), LockError> {
        let event = self.reader.next().await?;
        // The server replies that there is no event when it has read up to the present time.
        let is_read_up_to = |at: Timestamp| {
            let event = event.as_ref();
            event.is_none_or(|event| event.get_timestamp("clusterTime").is_ok_and(|time| time >= at))
        };
        let mut switched = None;
        if let Some(switch) = self.switch.take_if(|switch| is_read_up_to(switch.at)) {
            let switching = self.reader.switch(pipeline(&switch.filter).to_vec(), switch.at);
            Box::pin(switching).await?;
            switched = Some(switch.filter);
        }
        Ok((event.as_ref().and_then(news), switched))
    }

    async fn begin_switch(&mut self, filter: StreamFilter) -> Result<(), LockError> {
        let asking = pin!(majority_time(&self.reader.collection));
        let at = self.reader.gate.run(CommandKind::Stream, asking).await?;
        self.switch = at.map(|at| Switch { filter, at });
        Ok(())
    }
}

/// What an event of the server says of a lock.
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
    // MongoDB 4.4 knows only two values. It has no time of an event by the clock; only the second of `clusterTime` is known there.
    let either = |field: &str| doc! { "$ifNull": [format!("$fullDocument.{field}"), format!("$updateDescription.updatedFields.{field}")] };
    let kept = doc! {
        "operationType": 1, "documentKey": 1, "clusterTime": 1, "fullDocument": {
            "lockId": either("lockId"), "acquiredAt": either("acquiredAt"), "expiresAt": either("expiresAt"),
            "fencingToken": either("fencingToken"), "now": "$wallTime",
        },
    };
    [doc! { "$match": matching }, doc! { "$project": kept }]
}

/// The latest time of the server that a majority has reached: the server sends it with the reply to a query with that
/// read concern. The query finds nothing; `None` where the reply has no time.
async fn majority_time(locks: &Collection<Document>) -> Result<Option<Timestamp>, LockError> {
    let command = doc! {
        "find": locks.name(), "filter": { "_id": Bson::Null }, "limit": 1, "singleBatch": true,
        "readConcern": { "level": "majority" }, "maxTimeMS": millis(COMMAND_LIMIT),
    };
    let reply = run(locks, command).await?;
    Ok(reply.get_timestamp("operationTime").ok())
}

impl MongoStore {
    pub(super) async fn watch(&self, filter: StreamFilter) -> Result<LockStream, LockError> {
        let wanted = Wanted {
            pipeline: pipeline(&filter).to_vec(),
            reply_await: STREAM_AWAIT,
        };
        let opening = self.read_stream(&self.locks, self.ends.clone(), wanted, Begin::Now);
        let (reader, switch) = (opening.await?, None);
        let source = Source::Mongo(Box::new(MongoStream { reader, switch }));
        Ok(LockStream { source, filter })
    }
}

impl MemoryStore {
    pub(super) fn watch(&self, filter: StreamFilter) -> LockStream {
        let source = Source::Memory(self.events.subscribe());
        LockStream { source, filter }
    }
}

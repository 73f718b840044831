//! What happens to locks: the stream for waiters, and the one for operators.

use mongodb::bson::{Document, doc};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::Store;
use super::look::{of_names, one_of_these};
use super::stream_reader::{Begin, StreamReader};
use crate::error::meaning::Meaning;
use crate::protocol::{Name, News};
use crate::timing::STREAM_AWAIT;
use crate::{LockError, LockFilter};

/// The stream for the waiters of a process.
pub(crate) enum LockStream {
    /// A change stream of the server, which filters it: a process that waits for few locks costs little then, however many
    /// others are released.
    Mongo(Box<StreamReader>),
    /// The events of all locks.
    Memory(Receiver<News>),
    /// The events that the network of the simulation delivers; it ends with the stream.
    #[cfg(test)]
    Simulated(tokio::sync::mpsc::UnboundedReceiver<Result<News, LockError>>),
}

impl LockStream {
    /// The next event, or `None` if there was none for a while. Each call sends at most one request of the stream and must
    /// not be dropped, which would close the connection.
    pub(crate) async fn next(&mut self) -> Result<Option<News>, LockError> {
        match self {
            Self::Mongo(reader) => Ok(reader.next().await?.and_then(|change| change.news)),
            Self::Memory(events) => match timeout(STREAM_AWAIT, events.recv()).await {
                Ok(Ok(event)) => Ok(Some(event)),
                // A wake-up may be lost: waiters poll as well.
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) | Err(_) => Ok(None),
            },
            #[cfg(test)]
            Self::Simulated(events) => match timeout(STREAM_AWAIT, events.recv()).await {
                Ok(event) => event.ok_or_else(|| Meaning::StreamEnded.error())?.map(Some),
                Err(_) => Ok(None),
            },
        }
    }
}

/// The stages of the server for what happens to the locks that meet this condition. Renewals are not sent: they change only the end
/// of the lease. An acquisition comes as an insert, an update or a replacement.
fn pipeline(names: Option<Document>) -> Vec<Document> {
    let holder = doc! { "updateDescription.updatedFields.lockId": { "$exists": true } };
    let mut matching = doc! { "$or": [{ "operationType": { "$ne": "update" } }, holder] };
    if let Some(names) = names {
        matching.insert("$and", vec![names]);
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
    vec![doc! { "$match": matching }, doc! { "$project": kept }]
}

/// The field with the `_id` of the document that has changed.
const ID: &str = "documentKey._id";

impl Store {
    /// Opens the stream of the acquisitions, releases and deletions of these locks; without names it reports all.
    pub(crate) async fn watch(&self, names: Option<&[Name]>) -> Result<LockStream, LockError> {
        match self {
            Self::Mongo(store) => {
                let opening = StreamReader::begin(
                    store,
                    pipeline(names.map(|names| one_of_these(names, ID))),
                    Begin::Now,
                );
                Ok(LockStream::Mongo(Box::new(opening.await?)))
            }
            Self::Memory(store) => Ok(LockStream::Memory(store.events.subscribe())),
            #[cfg(test)]
            Self::Simulated(link) => link.watch(names).await,
        }
    }

    /// Opens a stream of the changes of the locks with the name or the prefix of a filter, for operators.
    pub(crate) async fn changes(&self, filter: &LockFilter, begin: Begin) -> Result<StreamReader, LockError> {
        let Self::Mongo(store) = self else {
            return Err(Meaning::NoStreams.error());
        };
        let names = of_names(filter, ID);
        // The end of the collection has no name. A condition that says so would keep the server from reading the oplog with the
        // names: it would make an event of each entry first, which takes more than twice as long.
        let ends = doc! { "operationType": { "$in": ["drop", "rename", "dropDatabase", "invalidate"] } };
        let names = (!names.is_empty()).then(|| doc! { "$or": [ends, { "$and": names }] });
        Box::pin(StreamReader::begin(store, pipeline(names), begin)).await
    }
}

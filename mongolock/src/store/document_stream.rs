//! The changes of documents in the order in which the server has made them, for operators: live, or from a time on.

use std::pin::pin;
use std::sync::Arc;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, Timestamp, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, ResumeToken};
use tokio::time::timeout;

use super::admin::{literally, named};
use super::change_stream::majority_time;
use super::gate::{Gate, Passage};
use super::mongo::MongoStore;
use crate::driver_span::suppressed;
use crate::meter::CommandKind;
use crate::store::driver_error;
use crate::timing::{DEAD_CONNECTION, HISTORY_AWAIT, HISTORY_LIMIT, STREAM_AWAIT};
use crate::{LockError, LockFilter};

type Event = ChangeStreamEvent<Document>;

/// Which changes a stream has.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    /// Only its name and its prefix count.
    pub(crate) filter: LockFilter,
    /// Whether renewals are changes as well; the server leaves them out otherwise.
    pub(crate) renewals: bool,
    /// The time at which the stream ends.
    pub(crate) until: Option<DateTime>,
}

/// Where a stream begins.
#[derive(Debug, Clone)]
pub(crate) enum Begin {
    Now,
    At(DateTime),
    /// After the change with this token, also if that has ended the stream.
    After(ResumeToken),
}

/// A change of a document, or of the whole collection.
#[derive(Debug)]
pub(crate) struct DocumentChange {
    /// The time of the change; before MongoDB 6.0 its second.
    pub(crate) at: DateTime,
    pub(crate) kind: ChangeKind,
}

#[derive(Debug)]
pub(crate) enum ChangeKind {
    /// The whole document after its insertion or replacement.
    Written {
        id: String,
        document: Document,
    },
    /// The fields that an update has changed.
    Updated {
        id: String,
        fields: Document,
    },
    Deleted {
        id: String,
    },
    /// The collection was dropped or renamed.
    AllDeleted,
    /// Nothing that concerns a lock.
    Other,
}

/// An open stream of the changes of documents.
pub(crate) struct DocumentStream {
    // The stream is dropped before the passage, because a shutdown waits until it is.
    stream: Box<ChangeStream<Event>>,
    passage: Passage,
    gate: Arc<Gate>,
    collection: Collection<Document>,
    until: Option<Timestamp>,
    /// A time that a majority had reached before the last reply.
    reached: Option<Timestamp>,
    /// Whether the server has read up to the present time.
    is_live: bool,
}

impl MongoStore {
    /// Opens a stream of the changes of lock documents.
    pub(super) async fn document_changes(
        &self,
        changes: &Changes,
        begin: Begin,
    ) -> Result<DocumentStream, LockError> {
        let pipeline = [doc! { "$match": wanted(changes) }, doc! { "$project": kept() }];
        let until = changes.until.map(|until| timestamp(until, 0));
        self.open(&self.background, pipeline.to_vec(), begin, until).await
    }

    /// Opens a stream of the processes that begin to wait.
    pub(super) async fn new_waiters(&self, begin: Begin) -> Result<DocumentStream, LockError> {
        let inserted = doc! { "$match": { "operationType": { "$in": ["insert", "invalidate"] } } };
        self.open(&self.waiters, vec![inserted], begin, None).await
    }

    async fn open(
        &self,
        collection: &Collection<Document>,
        pipeline: Vec<Document>,
        begin: Begin,
        until: Option<Timestamp>,
    ) -> Result<DocumentStream, LockError> {
        let (gate, passage) = (Arc::clone(&self.gate), self.gate.enter()?);
        // The first reply comes when the server has read the past.
        let limit = match begin {
            Begin::Now => DEAD_CONNECTION,
            Begin::At(_) | Begin::After(_) => HISTORY_LIMIT,
        };
        let opening = pin!(async {
            let reached = match until {
                Some(_) => majority_time(collection).await?,
                None => None,
            };
            let watch = collection.watch().pipeline(pipeline);
            let watch = watch.max_await_time(until.map_or(STREAM_AWAIT, |_| HISTORY_AWAIT));
            let watch = match begin {
                Begin::Now => watch,
                Begin::At(time) => watch.start_at_operation_time(timestamp(time, 1)),
                Begin::After(token) => watch.start_after(token),
            };
            Ok((Box::new(watch.await?), reached))
        });
        let (stream, reached) = gate.run_within(limit, CommandKind::Stream, opening).await?;
        Ok(DocumentStream {
            stream,
            passage,
            gate: Arc::clone(&gate),
            collection: collection.clone(),
            until,
            reached,
            is_live: false,
        })
    }
}

impl DocumentStream {
    /// The next change, or `None` if the server had none up to the present time. Each call sends at most one request of the
    /// stream and must not be dropped, which would close the connection.
    pub(crate) async fn next(&mut self) -> Result<Option<DocumentChange>, LockError> {
        let limit = if self.is_live {
            DEAD_CONNECTION
        } else {
            HISTORY_LIMIT
        };
        // It is on the heap, because each function around it would contain it otherwise.
        let next = Box::pin(timeout(limit, suppressed(self.stream.next_if_any())));
        let event = self.passage.run(async {
            match next.await {
                Ok(event) => Ok(event?),
                Err(_) => Err(LockError::no_reply("change stream", limit)),
            }
        });
        let event: Option<Event> = event.await?;
        if event.is_none() && !self.stream.is_alive() {
            return Err(driver_error::ended());
        }
        self.is_live |= event.is_none();
        Ok(event.map(change))
    }

    /// What a later stream needs to go on after the last change; `None` before the first reply that tells it.
    pub(crate) fn position(&self) -> Option<ResumeToken> {
        self.stream.resume_token()
    }

    /// Whether the stream has read up to its end, after a reply without a change.
    pub(crate) async fn is_over(&mut self) -> Result<bool, LockError> {
        let Some(until) = self.until else { return Ok(false) };
        if self.reached >= Some(until) {
            return Ok(true);
        }
        let asking = pin!(majority_time(&self.collection));
        self.reached = self.gate.run(CommandKind::Stream, asking).await?;
        Ok(false)
    }
}

/// The condition for the events of a stream.
fn wanted(changes: &Changes) -> Document {
    let mut wanted = Vec::new();
    if !changes.renewals {
        // A renewal changes only the end of the lease.
        let holder = doc! { "updateDescription.updatedFields.lockId": { "$exists": true } };
        wanted.push(doc! { "$or": [{ "operationType": { "$ne": "update" } }, holder] });
    }
    let id = "documentKey._id";
    let mut names = Vec::new();
    if let Some(name) = &changes.filter.name {
        names.push(doc! { "$or": named(id, name).to_vec() });
    }
    if let Some(prefix) = &changes.filter.prefix {
        names.push(doc! { id: { "$regex": format!("^{}", literally(prefix)) } });
    }
    if !names.is_empty() {
        // The end of the collection has no name.
        let nameless = doc! { "documentKey": { "$exists": false } };
        wanted.push(doc! { "$or": [nameless, { "$and": names }] });
    }
    if let Some(until) = changes.until {
        wanted.push(doc! { "clusterTime": { "$lt": timestamp(until, 0) } });
    }
    if wanted.is_empty() {
        // The server refuses an empty list.
        return doc! {};
    }
    doc! { "$and": wanted }
}

/// The fields of an event that are read.
fn kept() -> Document {
    let mut kept = doc! {
        "operationType": 1, "documentKey": 1, "clusterTime": 1, "wallTime": 1, "updateDescription": 1,
    };
    for field in ["lockId", "acquiredAt", "expiresAt", "fencingToken"] {
        kept.insert(format!("fullDocument.{field}"), 1);
    }
    kept
}

fn change(event: Event) -> DocumentChange {
    let second = |time: Timestamp| DateTime::from_millis(i64::from(time.time) * 1000);
    let at = event.wall_time.or_else(|| event.cluster_time.map(second));
    DocumentChange {
        at: at.unwrap_or(DateTime::from_millis(0)),
        kind: kind(event),
    }
}

fn kind(event: Event) -> ChangeKind {
    let gone = matches!(
        event.operation_type,
        OperationType::Drop | OperationType::Rename | OperationType::DropDatabase
    );
    if gone {
        return ChangeKind::AllDeleted;
    }
    let id = event
        .document_key
        .as_ref()
        .and_then(|key| key.get_str("_id").ok());
    let Some(id) = id.map(str::to_owned) else {
        return ChangeKind::Other;
    };
    match (
        event.operation_type,
        event.full_document,
        event.update_description,
    ) {
        (OperationType::Delete, ..) => ChangeKind::Deleted { id },
        (OperationType::Insert | OperationType::Replace, Some(document), _) => {
            ChangeKind::Written { id, document }
        }
        (OperationType::Update, _, Some(update)) => ChangeKind::Updated {
            id,
            fields: update.updated_fields,
        },
        _ => ChangeKind::Other,
    }
}

/// The operation time of a second. The greatest is in the year 2106.
fn timestamp(time: DateTime, increment: u32) -> Timestamp {
    let seconds = time.timestamp_millis().div_euclid(1000).max(1);
    Timestamp {
        time: u32::try_from(seconds).unwrap_or(u32::MAX),
        increment,
    }
}

//! The changes of documents in the order in which the server has made them, for operators: live, or from a time on.

use std::pin::pin;
use std::sync::Arc;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, Timestamp, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, ResumeToken};
use tokio::time::timeout;

use super::admin::{literally, named};
use super::gate::{Gate, Passage};
use super::mongo::{MongoStore, run};
use crate::driver_span::suppressed;
use crate::meter::CommandKind;
use crate::store::driver_error;
use crate::timing::{DEAD_CONNECTION, HISTORY_AWAIT, HISTORY_LIMIT, STREAM_AWAIT};
use crate::{LockError, LockFilter};

type Event = ChangeStreamEvent<Document>;

/// The most changes of a reply. It bounds the memory, and the number of changes after its end that a stream reads.
const BATCH: u32 = 500;

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
    /// The fields that an update has changed, and those that it has removed.
    Updated {
        id: String,
        fields: Document,
        removed: Vec<String>,
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
    end: Option<End>,
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
        self.open(&self.background, pipeline.to_vec(), begin, changes.until)
            .await
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
        until: Option<DateTime>,
    ) -> Result<DocumentStream, LockError> {
        let (gate, passage) = (Arc::clone(&self.gate), self.gate.enter()?);
        // The first reply comes when the server has read the past.
        let limit = match begin {
            Begin::Now => DEAD_CONNECTION,
            Begin::At(_) | Begin::After(_) => HISTORY_LIMIT,
        };
        let opening = pin!(async {
            let mut end = until.map(End::new);
            if let Some(end) = &mut end {
                end.look(collection).await?;
            }
            let watch = collection.watch().pipeline(pipeline);
            let watch = watch.max_await_time(until.map_or(STREAM_AWAIT, |_| HISTORY_AWAIT));
            let watch = watch.batch_size(BATCH);
            let watch = match begin {
                Begin::Now => watch,
                Begin::At(time) => watch.start_at_operation_time(timestamp(time, 1)),
                Begin::After(token) => watch.start_after(token),
            };
            Ok((Box::new(watch.await?), end))
        });
        let (stream, end) = gate.run_within(limit, CommandKind::Stream, opening).await?;
        Ok(DocumentStream {
            stream,
            passage,
            gate: Arc::clone(&gate),
            collection: collection.clone(),
            end,
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
        let mut event: Option<Event> = event.await?;
        if event.is_none() && !self.stream.is_alive() {
            return Err(driver_error::ended());
        }
        if let Some(end) = &mut self.end {
            event = event.filter(|event| end.has(event));
        }
        self.is_live |= event.is_none();
        Ok(event.map(change))
    }

    /// What a later stream needs to go on after the last change; `None` before the first reply that tells it.
    pub(crate) fn position(&self) -> Option<ResumeToken> {
        self.stream.resume_token()
    }

    /// Whether the stream has read up to its end, after a reply without a change. A router replies so as well while its shards
    /// still read; the position says up to when they have.
    pub(crate) async fn is_over(&mut self) -> Result<bool, LockError> {
        let Some(end) = &mut self.end else {
            return Ok(false);
        };
        let read_up_to = self.stream.resume_token().as_ref().and_then(time_of);
        if end.is_passed || read_up_to >= Some(end.at) {
            return Ok(true);
        }
        let looking = pin!(end.look(&self.collection));
        self.gate.run(CommandKind::Stream, looking).await?;
        Ok(false)
    }
}

/// The end of a stream.
struct End {
    until: DateTime,
    /// All changes up to then must be read: those before `until`, or once that has passed, those that there were.
    at: Timestamp,
    /// Whether the server has sent a change after the end, and so all before it.
    is_passed: bool,
}

impl End {
    fn new(until: DateTime) -> Self {
        Self {
            until,
            at: after(until),
            is_passed: false,
        }
    }

    /// Whether a change belongs to the stream.
    fn has(&mut self, event: &Event) -> bool {
        self.is_passed |= event.cluster_time >= Some(after(self.until));
        !self.is_passed
    }

    /// On a server without writes the position stays behind `until`, so that the stream ends with the latest write. A router
    /// does not tell that write; its shards write something every 10 s.
    async fn look(&mut self, collection: &Collection<Document>) -> Result<(), LockError> {
        let hello = run(collection, doc! { "hello": 1 }).await?;
        let has_passed = hello
            .get_datetime("localTime")
            .is_ok_and(|now| *now >= self.until);
        let latest = hello
            .get_document("lastWrite")
            .and_then(|last| last.get_document("opTime")?.get_timestamp("ts"));
        if let Ok(latest) = latest
            && has_passed
        {
            self.at = self.at.min(latest);
        }
        Ok(())
    }
}

/// The time up to which a stream has read: the server's position begins with it, as `82` and eight bytes in hexadecimal digits.
fn time_of(position: &ResumeToken) -> Option<Timestamp> {
    let position = serde_json::to_value(position).ok()?;
    let time = position.get("_data")?.as_str()?.strip_prefix("82")?;
    let number = |digits: Option<&str>| u32::from_str_radix(digits?, 16).ok();
    Some(Timestamp {
        time: number(time.get(..8))?,
        increment: number(time.get(8..16))?,
    })
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
        // The end of the collection has no name. A condition that says so would keep the server from reading the oplog with the
        // names: it would make an event of each entry first, which takes more than twice as long.
        let ends = ["drop", "rename", "dropDatabase", "invalidate"];
        let nameless = doc! { "operationType": { "$in": ends.to_vec() } };
        wanted.push(doc! { "$or": [nameless, { "$and": names }] });
    }
    // The server refuses an empty list.
    let wanted = if wanted.is_empty() {
        doc! {}
    } else {
        doc! { "$and": wanted }
    };
    let Some(until) = changes.until else {
        return wanted;
    };
    // Any change after the end fills a batch, with which the server stops reading.
    doc! { "$or": [{ "clusterTime": { "$gte": after(until) } }, wanted] }
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
            removed: update.removed_fields,
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

/// The operation time of the first second that begins at this time or later.
fn after(time: DateTime) -> Timestamp {
    timestamp(
        DateTime::from_millis(time.timestamp_millis().saturating_add(999)),
        0,
    )
}

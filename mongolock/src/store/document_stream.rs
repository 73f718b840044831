//! The changes of documents in the order in which the server has made them, for operators: live, or from a time on.

use std::pin::pin;

use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use tokio::sync::watch;

use super::admin::{literally, named};
use super::mongo::{MongoStore, run};
use super::stream_reader::{Begin, StreamReader, Wanted};
use crate::meter::CommandKind;
use crate::timing::{HISTORY_AWAIT, STREAM_AWAIT};
use crate::{LockError, LockFilter};

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

/// A stream of the changes of documents.
pub(crate) struct DocumentStream {
    reader: StreamReader,
    end: Option<End>,
}

impl MongoStore {
    /// Opens a stream of the changes of lock documents.
    pub(super) async fn document_changes(
        &self,
        changes: &Changes,
        begin: Begin,
    ) -> Result<DocumentStream, LockError> {
        let mut end = changes.until.map(End::new);
        if let Some(end) = &mut end {
            let looking = pin!(end.look(&self.background));
            self.gate.run(CommandKind::Stream, looking).await?;
        }
        let wanted = Wanted {
            pipeline: vec![doc! { "$match": wanted(changes) }, doc! { "$project": kept() }],
            reply_await: changes.until.map_or(STREAM_AWAIT, |_| HISTORY_AWAIT),
        };
        let opening = self.read_stream(&self.background, self.ends.clone(), wanted, begin);
        let reader = Box::pin(opening).await?;
        Ok(DocumentStream { reader, end })
    }

    /// Opens a stream of the processes that begin to wait.
    pub(super) async fn new_waiters(&self) -> Result<DocumentStream, LockError> {
        let inserted = doc! { "$match": { "operationType": { "$in": ["insert", "invalidate"] } } };
        let wanted = Wanted {
            pipeline: vec![inserted],
            reply_await: STREAM_AWAIT,
        };
        let opening = self.read_stream(&self.waiters, watch::Sender::new(0), wanted, Begin::Now);
        let (reader, end) = (Box::pin(opening).await?, None);
        Ok(DocumentStream { reader, end })
    }
}

impl DocumentStream {
    /// The next change, or `None` if the server had none up to the present time. Each call sends at most one request, unless
    /// the stream is resumed, and must not be dropped, which would close the connection. The call after an error goes on after
    /// the last change.
    pub(crate) async fn next(&mut self) -> Result<Option<DocumentChange>, LockError> {
        let mut event = self.reader.next().await?;
        if let Some(end) = &mut self.end {
            event = event.filter(|event| end.has(event));
        }
        Ok(event.map(change))
    }

    /// Whether the stream has read up to its end, after a reply without a change. A router replies so as well while its shards
    /// still read; the position says up to when they have.
    pub(crate) async fn is_over(&mut self) -> Result<bool, LockError> {
        let Some(end) = &mut self.end else {
            return Ok(false);
        };
        let read_up_to = self.reader.position().and_then(time_of);
        if end.is_passed || read_up_to >= Some(end.at) {
            return Ok(true);
        }
        let looking = pin!(end.look(&self.reader.collection));
        self.reader.gate.run(CommandKind::Stream, looking).await?;
        Ok(false)
    }
}

impl Begin {
    /// At the second of this time.
    pub(crate) fn at(time: DateTime) -> Self {
        Self::At(timestamp(time, 1))
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
    fn has(&mut self, event: &Document) -> bool {
        self.is_passed |= event.get_timestamp("clusterTime").ok() >= Some(after(self.until));
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
fn time_of(position: &Document) -> Option<Timestamp> {
    let time = position.get_str("_data").ok()?.strip_prefix("82")?;
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

fn change(event: Document) -> DocumentChange {
    let second = |time: Timestamp| DateTime::from_millis(i64::from(time.time) * 1000);
    let at = event.get_datetime("wallTime").copied();
    DocumentChange {
        at: at
            .or_else(|_| event.get_timestamp("clusterTime").map(second))
            .unwrap_or(DateTime::from_millis(0)),
        kind: kind(event).unwrap_or(ChangeKind::Other),
    }
}

fn kind(mut event: Document) -> Option<ChangeKind> {
    let mut document = |field| match event.remove(field)? {
        Bson::Document(document) => Some(document),
        _ => None,
    };
    let (key, written, update) = (
        document("documentKey"),
        document("fullDocument"),
        document("updateDescription"),
    );
    let operation = event.get_str("operationType").ok()?;
    if ["drop", "rename", "dropDatabase"].contains(&operation) {
        return Some(ChangeKind::AllDeleted);
    }
    let id = key?.get_str("_id").ok()?.to_owned();
    Some(match operation {
        "delete" => ChangeKind::Deleted { id },
        "insert" | "replace" => ChangeKind::Written {
            id,
            document: written?,
        },
        "update" => {
            let update = update?;
            let removed = update.get_array("removedFields").into_iter().flatten();
            ChangeKind::Updated {
                id,
                fields: update.get_document("updatedFields").ok()?.clone(),
                removed: removed.filter_map(Bson::as_str).map(str::to_owned).collect(),
            }
        }
        _ => return None,
    })
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

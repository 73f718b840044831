//! The changes of documents in the order of the server, for operators: live, or from a time on.

use std::pin::pin;

use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use mongodb::error::Error;

use super::admin::{literally, named};
use super::mongo::{MongoStore, run};
use super::stream_reader::{Begin, StreamReader, Wanted};
use crate::meter::CommandKind;
use crate::task::with_reply_limit;
use crate::timing::{HISTORY_AWAIT, STREAM_AWAIT};
use crate::{LockError, LockFilter};

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
    /// An event that does not concern a lock.
    Other,
}

/// A stream of the changes of documents.
pub(crate) struct DocumentStream {
    reader: StreamReader,
    /// The time of the last write before the stream, if it ends there.
    end: Option<Timestamp>,
    /// Whether the server has sent a change after the end, and therefore all changes before it.
    is_passed: bool,
}

impl MongoStore {
    /// Opens a stream of the changes of lock documents with this name or prefix, without renewals. It may end with the last write
    /// before it.
    pub(super) async fn document_changes(
        &self,
        filter: &LockFilter,
        begin: Begin,
        ends_at_present: bool,
    ) -> Result<DocumentStream, LockError> {
        let end = if ends_at_present {
            let looking = pin!(with_reply_limit(self.last_write()));
            Some(self.gate.run(CommandKind::Stream, looking).await?)
        } else {
            None
        };
        let wanted = Wanted {
            pipeline: vec![doc! { "$match": wanted(filter) }, doc! { "$project": kept() }],
            reply_await: if ends_at_present {
                HISTORY_AWAIT
            } else {
                STREAM_AWAIT
            },
        };
        let opening = self.read_stream(&self.locks, self.ends.clone(), wanted, begin);
        Ok(DocumentStream {
            reader: Box::pin(opening).await?,
            end,
            is_passed: false,
        })
    }

    /// The time of the server's last write. A router does not report it: there the end of the present second is used,
    /// which a stream reaches within 10 s, because each shard writes something at least that often.
    async fn last_write(&self) -> Result<Timestamp, LockError> {
        let hello = run(&self.locks, doc! { "hello": 1 }).await?;
        let last = hello
            .get_document("lastWrite")
            .and_then(|last| last.get_document("opTime")?.get_timestamp("ts"));
        let present = || {
            hello
                .get_datetime("localTime")
                .map(|now| timestamp(*now, u32::MAX))
        };
        last.or_else(|_| present())
            .map_err(|error| Error::custom(error).into())
    }
}

impl DocumentStream {
    /// The next change, or `None` if the server had none up to the present time or the end. Each call sends at most one
    /// request, unless the stream is resumed. The future must not be dropped, which would close the connection. After
    /// an error the next call continues after the last change.
    pub(crate) async fn next(&mut self) -> Result<Option<DocumentChange>, LockError> {
        let event = self.reader.next().await?;
        let is_after = |event: &Document| {
            let at = event.get_timestamp("clusterTime").ok();
            self.end.is_some_and(|end| at > Some(end))
        };
        self.is_passed |= event.as_ref().is_some_and(is_after);
        Ok(event.filter(|_| !self.is_passed).map(change))
    }

    /// Whether the stream has reached its end, after a reply without a change. A router sends such a reply also while
    /// its shards are still reading; the position shows how far they are.
    pub(crate) fn is_over(&self) -> bool {
        let has_read = |end| self.reader.position().and_then(time_of) >= Some(end);
        self.is_passed || self.end.is_some_and(has_read)
    }
}

impl Begin {
    /// Starts at the second of this time.
    pub(crate) fn at(time: DateTime) -> Self {
        Self::At(timestamp(time, 1))
    }
}

/// The time up to which a stream has read. The server's position begins with it: `82` and eight bytes, in hexadecimal
/// digits.
fn time_of(position: &Document) -> Option<Timestamp> {
    let time = position.get_str("_data").ok()?.strip_prefix("82")?;
    let number = |digits: Option<&str>| u32::from_str_radix(digits?, 16).ok();
    Some(Timestamp {
        time: number(time.get(..8))?,
        increment: number(time.get(8..16))?,
    })
}

/// The condition for the events of a stream.
fn wanted(filter: &LockFilter) -> Document {
    // A renewal changes only the end of the lease.
    let holder = doc! { "updateDescription.updatedFields.lockId": { "$exists": true } };
    let mut wanted = vec![doc! { "$or": [{ "operationType": { "$ne": "update" } }, holder] }];
    let id = "documentKey._id";
    let mut names = Vec::new();
    if let Some(name) = &filter.name {
        names.push(doc! { "$or": named(id, name).to_vec() });
    }
    if let Some(prefix) = &filter.prefix {
        names.push(doc! { id: { "$regex": format!("^{}", literally(prefix)) } });
    }
    if !names.is_empty() {
        // The event for the end of the collection has no lock name. A condition on that would prevent the server from
        // filtering the oplog by names: it would first convert each entry into an event, which takes more than twice as
        // long.
        let ends = ["drop", "rename", "dropDatabase", "invalidate"];
        let nameless = doc! { "operationType": { "$in": ends.to_vec() } };
        wanted.push(doc! { "$or": [nameless, { "$and": names }] });
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

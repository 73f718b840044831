//! Reads a change stream of the server: it opens the stream, keeps the position of each reply, and continues there
//! after an error.
//!
//! The driver's own streams are not used: if the connection breaks while a stream is being resumed, the driver repeats
//! the request without the position, so that the stream starts again at the present time, without an error.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::iter::once;
use std::mem::take;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};
use mongodb::error::Error;
use mongodb::raw_batch_cursor::RawBatchCursor;
use tokio::time::timeout;

use super::gate::Passage;
use super::mongo::fields::sight;
use super::mongo::{MongoStore, documents, primary};
use crate::LockError;
use crate::error::meaning::Meaning;
use crate::meter::CommandKind;
use crate::opaque::Opaque;
use crate::protocol::News;
use crate::task::{driver_call, within};
use crate::timing::{HISTORY_LIMIT, REQUEST_LIMIT, STREAM_AWAIT};

/// The greatest number of events in a reply. It limits the memory, and the number of events that a stream reads after
/// its end.
const BATCH: u32 = 500;

/// Where a stream begins or goes on.
#[derive(Debug, Clone)]
pub(crate) enum Begin {
    Now,
    At(Timestamp),
    /// After the event or the reply with this position, even if that event has ended the stream.
    After(Document),
}

impl Begin {
    /// At the second of this time.
    pub(crate) fn at(time: DateTime) -> Self {
        let seconds = time.timestamp_millis().div_euclid(1000).max(1);
        Self::At(Timestamp {
            // The greatest is in the year 2106.
            time: u32::try_from(seconds).unwrap_or(u32::MAX),
            increment: 1,
        })
    }
}

/// A change stream, which outlives its cursors.
pub(crate) struct StreamReader {
    // The cursor is dropped before the passage, because a shutdown waits until it is.
    cursor: Option<Box<RawBatchCursor>>,
    passage: Passage,
    store: Opaque<MongoStore>,
    pipeline: Vec<Document>,
    /// Where the stream goes on after the last reply.
    position: Begin,
    /// The time of the server's last operation at the first reply.
    begun_at: Option<Timestamp>,
    /// The events of the last reply that were not returned yet.
    events: VecDeque<Document>,
    /// Whether the server has closed the stream with the last reply: the collection was dropped or renamed.
    has_ended: bool,
    /// Whether the server has only the present to read for the next reply.
    is_live: bool,
}

impl StreamReader {
    /// Opens a stream of the events of the locks' collection.
    pub(super) async fn begin(
        store: &Opaque<MongoStore>,
        pipeline: Vec<Document>,
        begin: Begin,
    ) -> Result<Self, LockError> {
        let mut reader = Self {
            cursor: None,
            passage: store.enter()?,
            store: store.clone(),
            pipeline,
            is_live: matches!(begin, Begin::Now),
            position: begin,
            begun_at: None,
            events: VecDeque::new(),
            has_ended: false,
        };
        // The reply has the first events.
        reader.receive().await?;
        Ok(reader)
    }

    /// The next change, or `None` if the server had none up to the present time. Each call sends at most one request,
    /// and must not be dropped, which would close the connection. The call after an error goes on where the stream was.
    pub(crate) async fn next(&mut self) -> Result<Option<Change>, LockError> {
        if self.events.is_empty() && !self.has_ended {
            self.receive().await?;
        }
        let event = self.events.pop_front();
        if event.is_none() && take(&mut self.has_ended) {
            return Err(Meaning::StreamEnded.error());
        }
        self.is_live |= event.is_none();
        Ok(event.as_ref().map(Change::of))
    }

    /// The time up to which the stream has read; `None` before the first reply.
    pub(crate) fn reached(&self) -> Option<Timestamp> {
        match &self.position {
            Begin::Now => None,
            Begin::At(time) => Some(*time),
            Begin::After(position) => time_of(position),
        }
    }

    /// Whether all changes before the first reply were returned. A router replies as if there were no more while its shards still
    /// read; the position says up to when they have.
    pub(crate) fn has_passed_begin(&self) -> bool {
        self.events.is_empty() && self.begun_at <= self.reached()
    }

    /// Whether the change comes after the first reply.
    pub(crate) fn is_new(&self, change: &Change) -> bool {
        self.begun_at.is_some_and(|begun_at| change.place > begun_at)
    }

    /// Whether the stream has read up to the present.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Waits for the next reply of the server.
    async fn receive(&mut self) -> Result<(), LockError> {
        let mut reply = self.reply().await?;
        let operation_time = reply.get_timestamp("operationTime").ok();
        self.begun_at = self.begun_at.or(operation_time);
        let cursor = reply.get_document_mut("cursor").map_err(Error::custom)?;
        let batch = cursor.remove("firstBatch").or_else(|| cursor.remove("nextBatch"));
        if let Some(Bson::Array(batch)) = batch {
            self.events = documents(batch).collect();
        }
        let of_event = || self.events.back()?.get_document("_id").ok().cloned();
        let told = cursor.get_document("postBatchResumeToken").ok().cloned();
        if let Some(position) = told.or_else(of_event) {
            self.position = Begin::After(position);
        }
        if cursor.get_i64("id").is_ok_and(|id| id == 0) {
            self.cursor = None;
            self.has_ended = true;
            // An end that is read from the past does not concern the present collection.
            if self.is_live {
                self.store.index.send_replace(None);
            }
        }
        Ok(())
    }

    /// One reply. Without it the cursor is closed, and the next call opens another one.
    async fn reply(&mut self) -> Result<Document, LockError> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => self.open().await?,
        };
        let limit = self.limit();
        let next = poll_fn(|cx| Pin::new(&mut *cursor).poll_next(cx));
        // It is on the heap, because each function around it would contain it otherwise.
        let next = Box::pin(timeout(limit, next));
        let reply = self.passage.run(async {
            match next.await {
                Ok(Some(batch)) => Ok(Document::try_from(batch?.as_raw_document()).map_err(Error::custom)?),
                Ok(None) => Err(Meaning::StreamEnded.error()),
                Err(_) => Err(LockError::no_reply("change stream", limit)),
            }
        });
        let reply = reply.await;
        match &reply {
            Ok(_) => self.cursor = Some(cursor),
            // The server may have to read much of the past.
            Err(error) => self.is_live &= error.meaning() != Meaning::NoReply,
        }
        reply
    }

    /// Opens a cursor at the position.
    async fn open(&mut self) -> Result<Box<RawBatchCursor>, LockError> {
        let begin = match &self.position {
            Begin::Now => doc! {},
            Begin::At(time) => doc! { "startAtOperationTime": *time },
            Begin::After(position) => doc! { "startAfter": position.clone() },
        };
        let stages = once(doc! { "$changeStream": begin }).chain(self.pipeline.iter().cloned());
        let command = doc! {
            "aggregate": self.store.locks.name(),
            "pipeline": stages.collect::<Vec<_>>(),
            "cursor": { "batchSize": BATCH },
            "readConcern": { "level": "majority" },
        };
        let database = self.store.database();
        let opening = database
            .run_cursor_command(command)
            .selection_criteria(primary())
            .batch_size(BATCH)
            .max_time(STREAM_AWAIT);
        let opening = async { Ok(Box::new(driver_call(opening.batch()).await?)) };
        let opening = pin!(within(self.limit(), opening));
        self.store.pass(CommandKind::Stream, opening).await
    }

    /// The time that a reply may take.
    fn limit(&self) -> Duration {
        if self.is_live {
            REQUEST_LIMIT
        } else {
            HISTORY_LIMIT
        }
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

/// A change of the documents, as operators see it.
pub(crate) struct Change {
    /// The time of the change; before MongoDB 6.0 its second.
    pub(crate) at: DateTime,
    /// The server's place of the change in the order of all changes.
    pub(crate) place: Timestamp,
    /// What has happened to which lock. It has no name if the collection was dropped or renamed; `None` if the change concerns no
    /// lock.
    pub(crate) news: Option<News>,
}

impl Change {
    pub(super) fn of(event: &Document) -> Self {
        let place = event.get_timestamp("clusterTime");
        let place = place.unwrap_or(Timestamp {
            time: 0,
            increment: 0,
        });
        let document = event.get_document("fullDocument");
        let at = document.and_then(|document| document.get_datetime("now"));
        Self {
            at: at.copied().unwrap_or_else(|_| second(place)),
            place,
            news: news(event),
        }
    }
}

/// The second of an operation.
pub(crate) fn second(place: Timestamp) -> DateTime {
    DateTime::from_millis(i64::from(place.time) * 1000)
}

fn news(event: &Document) -> Option<News> {
    let operation = event.get_str("operationType").ok()?;
    let name = match (event.get_document("documentKey"), operation) {
        (Ok(key), _) => key.get_str("_id").ok()?,
        (Err(_), "drop" | "rename" | "dropDatabase") => "",
        (Err(_), _) => return None,
    };
    let document = event.get_document("fullDocument").ok();
    let has_document = ["insert", "replace", "update"].contains(&operation);
    Some(News {
        name: Arc::from(name),
        sight: document.filter(|_| has_document).map(sight),
    })
}

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
use mongodb::Collection;
use mongodb::bson::{Bson, Document, Timestamp, doc};
use mongodb::error::Error;
use mongodb::raw_batch_cursor::RawBatchCursor;
use tokio::sync::watch;
use tokio::time::timeout;

use super::gate::{Gate, Passage};
use super::mongo::{MongoStore, primary};
use crate::LockError;
use crate::error::failure::Failure;
use crate::error::meaning::{Meaning, is_rejected};
use crate::meter::CommandKind;
use crate::task::{driver_call, within};
use crate::timing::{DEAD_CONNECTION, HISTORY_LIMIT};

/// The greatest number of events in a reply. It limits the memory, and the number of events that a stream reads after
/// its end.
const BATCH: u32 = 500;

/// The label of an error after which a change stream can be resumed.
const RESUMABLE: &str = "ResumableChangeStreamError";

/// The point at which a stream begins or continues.
#[derive(Debug, Clone)]
pub(crate) enum Begin {
    Now,
    At(Timestamp),
    /// After the event or the reply with this position, even if that event has ended the stream.
    After(Document),
}

/// The events that a stream has, and how long the server waits for one before it replies that there is none.
pub(super) struct Wanted {
    pub(super) pipeline: Vec<Document>,
    pub(super) reply_await: Duration,
}

/// A change stream, which opens a new cursor when one is lost.
pub(super) struct StreamReader {
    // The cursor is dropped before the passage, because a shutdown waits until it is.
    cursor: Option<Box<RawBatchCursor>>,
    passage: Passage,
    pub(super) gate: Arc<Gate>,
    pub(super) collection: Collection<Document>,
    wanted: Wanted,
    /// The point at which the stream continues after the last reply.
    position: Begin,
    /// The events of the last reply that were not returned yet.
    events: VecDeque<Document>,
    /// Whether the server has closed the stream with the last reply: the collection was dropped or renamed.
    has_ended: bool,
    /// The number of ends of the collection.
    ends: watch::Sender<u64>,
    /// Whether the stream has reached the present.
    is_live: bool,
}

impl MongoStore {
    /// Opens a stream of the events of a collection. It counts the ends of the collection in `ends`.
    pub(super) async fn read_stream(
        &self,
        collection: &Collection<Document>,
        ends: watch::Sender<u64>,
        wanted: Wanted,
        begin: Begin,
    ) -> Result<StreamReader, LockError> {
        let mut reader = StreamReader {
            cursor: None,
            passage: self.gate.enter()?,
            gate: Arc::clone(&self.gate),
            collection: collection.clone(),
            wanted,
            is_live: matches!(begin, Begin::Now),
            position: begin,
            events: VecDeque::new(),
            has_ended: false,
            ends,
        };
        reader.open().await?;
        Ok(reader)
    }
}

impl StreamReader {
    /// The next event, or `None` if the server had none up to the present time. Each call sends at most one request,
    /// unless the stream is resumed. The future must not be dropped, which would close the connection. After an error
    /// the next call continues where the stream was.
    pub(super) async fn next(&mut self) -> Result<Option<Document>, LockError> {
        if self.events.is_empty() && !self.has_ended {
            self.receive().await?;
        }
        let event = self.events.pop_front();
        if event.is_none() && take(&mut self.has_ended) {
            return Err(Meaning::StreamEnded.error());
        }
        self.is_live |= event.is_none();
        Ok(event)
    }

    /// The server's position after the last reply, if the reply has one.
    pub(super) fn position(&self) -> Option<&Document> {
        match &self.position {
            Begin::After(position) => Some(position),
            Begin::Now | Begin::At(_) => None,
        }
    }

    /// Waits for the next reply of the server.
    async fn receive(&mut self) -> Result<(), LockError> {
        let is_open = self.cursor.is_some();
        let mut reply = self.reply().await;
        if is_open && reply.as_ref().is_err_and(is_resumable) {
            reply = self.reply().await;
        }
        let mut reply = reply?;
        let begun_at = reply.get_timestamp("operationTime");
        let cursor = reply.get_document_mut("cursor").map_err(Error::custom)?;
        let batch = cursor.remove("firstBatch").or_else(|| cursor.remove("nextBatch"));
        if let Some(Bson::Array(batch)) = batch {
            let documents = batch.into_iter().filter_map(|event| match event {
                Bson::Document(event) => Some(event),
                _ => None,
            });
            self.events = documents.collect();
        }
        let of_event = || self.events.back()?.get_document("_id").ok().cloned();
        let told = cursor.get_document("postBatchResumeToken").ok().cloned();
        match told.or_else(of_event) {
            Some(position) => self.position = Begin::After(position),
            None if matches!(self.position, Begin::Now) => {
                self.position = begun_at.map_or(Begin::Now, Begin::At);
            }
            None => {}
        }
        if matches!(cursor.get_i64("id"), Ok(0)) {
            self.cursor = None;
            self.has_ended = true;
            // An end that is read from the past does not concern the present collection.
            if self.is_live {
                self.ends.send_modify(|ends| *ends += 1);
            }
        }
        Ok(())
    }

    /// One reply. Without it the cursor is closed, and the next call opens another one.
    async fn reply(&mut self) -> Result<Document, LockError> {
        if self.cursor.is_none() {
            self.open().await?;
        }
        let limit = self.limit();
        let Some(cursor) = &mut self.cursor else {
            return Err(Meaning::StreamEnded.error());
        };
        let next = poll_fn(|cx| Pin::new(&mut **cursor).poll_next(cx));
        // The future is on the heap, because otherwise each calling function would contain it.
        let next = Box::pin(timeout(limit, next));
        let reply = self.passage.run(async {
            match next.await {
                Ok(Some(batch)) => Ok(Document::try_from(batch?.as_raw_document()).map_err(Error::custom)?),
                Ok(None) => Err(Meaning::StreamEnded.error()),
                Err(_) => Err(LockError::no_reply("change stream", limit)),
            }
        });
        let reply = reply.await;
        if let Err(error) = &reply {
            self.cursor = None;
            // The server may have to read much of the past.
            self.is_live &= error.meaning() != Meaning::NoReply;
        }
        reply
    }

    /// Opens a cursor at the position. After an error of the connection, or of a member that is no primary any more, it tries
    /// a second time, as the driver does with other queries.
    async fn open(&mut self) -> Result<(), LockError> {
        self.cursor = None;
        let mut opened = self.open_once().await;
        if opened.as_ref().is_err_and(is_resumable) {
            opened = self.open_once().await;
        }
        self.cursor = Some(opened?);
        Ok(())
    }

    async fn open_once(&mut self) -> Result<Box<RawBatchCursor>, LockError> {
        let begin = match &self.position {
            Begin::Now => doc! {},
            Begin::At(time) => doc! { "startAtOperationTime": *time },
            Begin::After(position) => doc! { "startAfter": position.clone() },
        };
        let stages = once(doc! { "$changeStream": begin }).chain(self.wanted.pipeline.iter().cloned());
        let command = doc! {
            "aggregate": self.collection.name(),
            "pipeline": stages.collect::<Vec<_>>(),
            "cursor": { "batchSize": BATCH },
            "readConcern": { "level": "majority" },
        };
        let database = self.collection.client().database(&self.collection.namespace().db);
        let opening = database
            .run_cursor_command(command)
            .selection_criteria(primary())
            .batch_size(BATCH)
            .max_time(self.wanted.reply_await);
        let opening = async { Ok(Box::new(driver_call(opening.batch()).await?)) };
        let opening = pin!(within(self.limit(), opening));
        self.gate.run(CommandKind::Stream, opening).await
    }

    /// The time that a reply may take.
    fn limit(&self) -> Duration {
        if self.is_live {
            DEAD_CONNECTION
        } else {
            HISTORY_LIMIT
        }
    }
}

/// Whether a stream can be resumed at once: its connection or its cursor was lost, or the member is no primary any
/// more. A server that cannot be reached, or that rejects commands for overload, needs a pause.
fn is_resumable(error: &LockError) -> bool {
    let LockError::Mongo(error) = error else {
        return false;
    };
    match Meaning::of(error) {
        Meaning::NoServer | Meaning::LogIn | Meaning::NoStreams | Meaning::HistoryLost => false,
        _ if Failure::of(error).is_some() || is_rejected(error) => false,
        meaning => meaning.passes() || error.contains_label(RESUMABLE),
    }
}

use std::pin::pin;
use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::gate::Passage;
use super::memory::MemoryStore;
use super::mongo::MongoStore;
use crate::LockError;
use crate::store::driver_error;
use crate::task::with_reply_limit;
use crate::timing::STREAM_AWAIT;

type Event = ChangeStreamEvent<Document>;
type Stream = ChangeStream<Event>;

/// A stream of the names of locks that are released or deleted.
pub(crate) enum Releases {
    Mongo {
        // The stream is dropped before the passage, because a shutdown waits until it is.
        stream: Box<Stream>,
        passage: Passage,
    },
    Memory(Receiver<Arc<str>>),
    #[cfg(test)]
    Simulated(crate::simulation::Hints),
}

impl Releases {
    /// The next name, or `None` if there was none for a while.
    pub(crate) async fn next(&mut self) -> Result<Option<Arc<str>>, LockError> {
        match self {
            Self::Mongo { stream, passage } => {
                let event = next_event(stream, passage).await?;
                // A stream that has ended with its collection returns nothing any more.
                if event.is_none() && !stream.is_alive() {
                    return Err(driver_error::ended());
                }
                let key = event.and_then(|event| event.document_key);
                Ok(key.and_then(|key| key.get_str("_id").map(Arc::from).ok()))
            }
            Self::Memory(releases) => Ok(match timeout(STREAM_AWAIT, releases.recv()).await {
                Ok(Ok(name)) => Some(name),
                // A wake-up may be lost: waiters poll as well.
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) | Err(_) => None,
            }),
            #[cfg(test)]
            Self::Simulated(hints) => hints.next().await,
        }
    }
}

async fn next_event(stream: &mut Stream, passage: &mut Passage) -> Result<Option<Event>, LockError> {
    let next = pin!(async { Ok(stream.next_if_any().await?) });
    passage.run(with_reply_limit(next)).await
}

impl MongoStore {
    /// Opens the change stream. The server filters it, so that renewals and acquisitions are not sent.
    pub(super) async fn watch(&self) -> Result<Releases, LockError> {
        let released = doc! { "operationType": "update", "updateDescription.updatedFields.lockId": "" };
        let matching = doc! { "$match": { "$or": [released, { "operationType": "delete" }] } };
        let names = doc! { "$project": { "operationType": 1, "documentKey": 1 } };
        let mut passage = self.gate.enter()?;
        let watching = self
            .background
            .watch()
            .pipeline([matching, names])
            .max_await_time(STREAM_AWAIT);
        let opening = pin!(async { Ok(Box::new(watching.await?)) });
        let stream = passage.run(with_reply_limit(opening)).await;
        self.gate.count_stream(stream.is_ok());
        let stream = stream?;
        Ok(Releases::Mongo { stream, passage })
    }
}

impl MemoryStore {
    pub(super) fn watch(&self) -> Releases {
        Releases::Memory(self.releases.subscribe())
    }
}

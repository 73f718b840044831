use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::memory::MemoryStore;
use super::mongo::MongoStore;
use crate::LockError;
use crate::store::driver_error;
use crate::task::with_reply_limit;
use crate::timing::STREAM_AWAIT;

/// A stream of the names of locks that are released or deleted.
pub(crate) enum Releases {
    Mongo(Box<ChangeStream<ChangeStreamEvent<Document>>>),
    Memory(Receiver<Arc<str>>),
    #[cfg(test)]
    Simulated(crate::simulation::Hints),
}

impl Releases {
    /// The next name, or `None` if there was none for a while.
    pub(crate) async fn next(&mut self) -> Result<Option<Arc<str>>, LockError> {
        match self {
            Self::Mongo(stream) => {
                let event = with_reply_limit(async { Ok(stream.next_if_any().await?) }).await?;
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

impl MongoStore {
    /// Opens the change stream. The server filters it, so that renewals and acquisitions are not sent.
    pub(super) async fn watch(&self) -> Result<Releases, LockError> {
        let released = doc! { "operationType": "update", "updateDescription.updatedFields.lockId": "" };
        let matching = doc! { "$match": { "$or": [released, { "operationType": "delete" }] } };
        let names = doc! { "$project": { "operationType": 1, "documentKey": 1 } };
        let stream = self
            .background
            .watch()
            .pipeline([matching, names])
            .max_await_time(STREAM_AWAIT)
            .await?;
        Ok(Releases::Mongo(Box::new(stream)))
    }
}

impl MemoryStore {
    pub(super) fn watch(&self) -> Releases {
        Releases::Memory(self.releases.subscribe())
    }
}

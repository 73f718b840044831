//! One fenced write: a future with options.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use mongodb::ClientSession;

use super::kinds::{PreparedWrite, Upsert, Write};
use crate::timing::DEAD_CONNECTION;
use crate::{LockError, task};

/// A fenced write with the driver's options `O`, which is sent when it is awaited; made by
/// [`FencedCollection`](crate::FencedCollection).
///
/// ```no_run
/// use mongodb::bson::{Document, doc};
/// use mongolock::{FencedExt, FencingToken, LockError};
///
/// # async fn example(reports: mongodb::Collection<Document>, token: FencingToken) -> Result<(), LockError> {
/// let report = doc! { "_id": 42, "title": "new" };
/// match reports.fenced(token).replace_one(doc! { "_id": 42 }, &report).upsert(true).await {
///     Ok(result) => println!("written: {result:?}"),
///     Err(LockError::Stale { seen, .. }) => println!("stale: the document has the token {seen}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// - [`LockError::Stale`] if the document has a greater token. Nothing is changed.
/// - [`LockError::NoFencingToken`] for the token of a permit. Nothing is sent.
/// - [`LockError::InvalidFence`] if the fence field has an invalid name, the write itself would change the field, or
///   the field of a document contains a value that is not a token. Nothing is changed.
/// - [`LockError::Mongo`] for the driver's errors. Without a session it is also returned after 60 s without a reply, on
///   a connection that is dead but not closed; the write may then have taken effect.
///
/// # Cost
///
/// A write is one command if the document exists, or is upserted by its `_id`. If no document matches, or a unique key
/// collides, a second command finds out the reason, and the write is repeated if the document was created or deleted
/// meanwhile. An upsert is first sent as an update without upsert if its query does not name the `_id`, or if it has a
/// collation or a session: a stale upsert then creates no second document.
///
/// # Cancel safety
///
/// Without a session, a write that was polled runs to its end even if the future is dropped: it may take effect or not.
/// With a session, dropping the future cancels the write, as with the driver's own writes; end the transaction then.
///
/// # Panics
///
/// Outside a tokio runtime.
#[must_use = "nothing is written before the write is awaited"]
pub struct FencedWrite<'a, O: Write> {
    pub(super) prepared: Result<PreparedWrite<O>, LockError>,
    pub(super) session: Option<&'a mut ClientSession>,
}

impl<O: Write> FencedWrite<'_, O> {
    /// Makes the write in this session, and in its transaction if it has one.
    pub fn session<'s>(self, session: impl Into<&'s mut ClientSession>) -> FencedWrite<'s, O> {
        FencedWrite {
            prepared: self.prepared,
            session: Some(session.into()),
        }
    }

    /// Sets all options, which are those of the driver, instead of those that were set before.
    pub fn with_options(mut self, options: impl Into<Option<O>>) -> Self {
        if let Ok(prepared) = &mut self.prepared {
            prepared.options = options.into().unwrap_or_default();
        }
        self
    }
}

impl<O: Upsert> FencedWrite<'_, O> {
    /// Inserts a document if none matches the query.
    pub fn upsert(mut self, upsert: bool) -> Self {
        let prepared = self.prepared.as_mut().ok();
        if let Some(option) = prepared.and_then(|write| write.options.upsert()) {
            *option = Some(upsert);
        }
        self
    }
}

impl<'a, O: Write> IntoFuture for FencedWrite<'a, O> {
    type Output = Result<O::Result, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { prepared, session } = self;
        match session {
            None => Box::pin(async {
                task::start(task::limited(DEAD_CONNECTION, "command", prepared?.make(None))).await
            }),
            Some(session) => Box::pin(async { prepared?.make(Some(session)).await }),
        }
    }
}

impl<O: Write> fmt::Debug for FencedWrite<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedWrite").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use mongodb::Client;
    use mongodb::bson::{Document, doc};
    use tokio::time::Instant;

    use super::*;
    use crate::{FencedExt, FencingToken};

    /// The connection delivers no reply, and the driver itself would wait for longer.
    #[tokio::test(start_paused = true)]
    async fn a_write_without_a_reply_ends_after_a_minute() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let patient = "connectTimeoutMS=3600000&serverSelectionTimeoutMS=3600000";
        let uri = format!("mongodb://{address}/?directConnection=true&{patient}");
        let client = Client::with_uri_str(uri).await.unwrap();
        let documents = client.database("app").collection::<Document>("documents");
        let begun = Instant::now();
        let writing = documents.fenced(FencingToken::from(1)).insert_one(doc! {});
        let written = writing.await;
        assert!(matches!(written, Err(LockError::Mongo(_))), "{written:?}");
        let waited = begun.elapsed();
        assert!(
            (DEAD_CONNECTION..DEAD_CONNECTION * 2).contains(&waited),
            "{waited:?}"
        );
    }
}

//! One fenced write: a future with options. It is sent, and diagnosed if it was refused.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};

use super::kinds::{PreparedWrite, Upsert, Write};
use crate::error::meaning::{Meaning, colliding_values};
use crate::timing::REQUEST_LIMIT;
use crate::{LockError, meter, task, trace};

/// The number of times a write is made when the document is created or deleted between a refusal and its diagnosis.
const ROUNDS: usize = 10;

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
                // After this time its connection must be dead.
                task::start(task::limited(REQUEST_LIMIT, "command", prepared?.make(None))).await
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

impl<O: Write> PreparedWrite<O> {
    /// Makes the write; the error says why it was refused.
    pub(super) async fn make(
        mut self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<O::Result, LockError> {
        let upserts = self.options.upsert().is_some_and(|upsert| *upsert == Some(true));
        // Two documents cannot have the same `_id`, so the upsert of a stale holder collides. By other fields, or by an
        // `_id` that is equal to another only under a collation, it could insert a second document; and a collision
        // would end a transaction. In these cases an update is tried first.
        let by_id = names_id(&self.query) && self.options.find_options().collation.is_none();
        let mut inserts = upserts && session.is_none() && by_id;
        // The collision with a document that may not meet the other conditions of the query.
        let mut unmet: Option<Error> = None;
        for _ in 0..ROUNDS {
            let collision = match self.send(inserts, session.as_deref_mut()).await {
                Ok(result) if O::has_written(&result) => return Ok(result),
                Ok(result) => {
                    if let Some(collision) = unmet {
                        return Err(collision.into());
                    }
                    let exists = self.diagnose(&self.query, session.as_deref_mut()).await?;
                    if !exists && !upserts {
                        return Ok(result);
                    }
                    inserts = upserts && !exists;
                    continue;
                }
                Err(error) => error,
            };
            // The server says with which values an update collides. If the query asks for just these, it is the document of the
            // query: a later holder has written it, or it does not match the other conditions, or another client has just
            // inserted it. Any other collision has nothing to do with the fence.
            let wanted = match self.options.upsert() {
                Some(_) => colliding_values(&collision).filter(|values| self.asks_for(values)),
                None if Meaning::of(&collision) == Meaning::DuplicateKey => Some(self.query.clone()),
                None => None,
            };
            let Some(wanted) = wanted.filter(|values| !values.is_empty()) else {
                return Err(collision.into());
            };
            let exists = match self.diagnose(&wanted, session.as_deref_mut()).await {
                // A collision ends a transaction, in which nothing can be read afterwards.
                Err(LockError::Mongo(_)) if session.is_some() => false,
                exists => exists?,
            };
            if !upserts || session.is_some() {
                return Err(collision.into());
            }
            inserts = false;
            unmet = (exists && self.query.len() > wanted.len()).then_some(collision);
        }
        // Other clients keep creating and deleting the document.
        Ok(self.send(upserts, session).await?)
    }

    async fn send(&self, inserts: bool, session: Option<&mut ClientSession>) -> Result<O::Result, Error> {
        let mut options = self.options.clone();
        if let Some(upsert) = options.upsert() {
            *upsert = inserts.then_some(true);
        }
        O::send(self, options, session).await
    }

    /// Whether a document with these values exists; the error is `Stale` if a later holder has written it.
    async fn diagnose(
        &self,
        values: &Document,
        session: Option<&mut ClientSession>,
    ) -> Result<bool, LockError> {
        let find = self
            .documents
            .find_one(values.clone())
            .with_options(self.options.find_options())
            // A secondary may not yet have the document because of which the primary refused the write.
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .projection(doc! { self.fence.field.as_str(): 1 });
        let found = match session {
            Some(session) => find.session(session).await?,
            // A majority may not have it yet either. A transaction uses its own read concern.
            None => find.read_concern(ReadConcern::local()).await?,
        };
        let accepted = found
            .as_ref()
            .map_or(Ok(()), |document| self.fence.accept(document));
        if let Err(LockError::Stale { token, seen }) = &accepted {
            meter::stale_write();
            trace::stale(&self.documents.namespace(), *token, *seen);
        }
        accepted.map(|()| found.is_some())
    }

    fn asks_for(&self, values: &Document) -> bool {
        let mut values = values.iter();
        values.all(|(field, value)| self.query.get(field).is_some_and(|asked| are_equal(asked, value)))
    }
}

/// Whether the query names one `_id`.
fn names_id(query: &Document) -> bool {
    match query.get("_id") {
        None | Some(Bson::RegularExpression(_)) => false,
        Some(Bson::Document(operators)) => operators.keys().all(|key| !key.starts_with('$')),
        Some(_) => true,
    }
}

/// Whether MongoDB takes two values for equal: numbers of different types can be.
fn are_equal(one: &Bson, other: &Bson) -> bool {
    // Beyond 2^53 two different integers can be equal here; then a document is read needlessly.
    #[allow(clippy::cast_precision_loss)]
    let number = |value: &Bson| value.as_i64().map(|number| number as f64);
    let number = |value: &Bson| number(value).or(value.as_f64()).or(value.as_i32().map(f64::from));
    one == other || number(one).is_some_and(|one| number(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use mongodb::Client;
    use mongodb::bson::bson;
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
        let is_minute = (REQUEST_LIMIT..REQUEST_LIMIT * 2).contains(&waited);
        assert!(is_minute, "{waited:?}");
    }

    #[test]
    fn only_an_equal_id_names_one_document() {
        let document = bson!({ "tenant": 1, "number": 2 });
        for one in [bson!(1), bson!("a"), bson!(null), document] {
            assert!(names_id(&doc! { "a": 1, "_id": one.clone() }), "{one}");
        }
        for many in [
            bson!({ "$in": [1, 2] }),
            bson!({ "$gte": 1 }),
            bson!({ "$eq": 1 }),
        ] {
            assert!(!names_id(&doc! { "_id": many.clone() }), "{many}");
        }
        assert!(!names_id(&doc! { "a": 1 }));
    }
}

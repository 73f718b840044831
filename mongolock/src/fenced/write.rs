//! One fenced write: it is sent, and diagnosed if it matched no document.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::options::{FindOneOptions, InsertOneOptions, ReadConcern, ReadPreference, SelectionCriteria};
use mongodb::results::InsertOneResult;
use mongodb::{ClientSession, Collection};

use super::FencedCollection;
use super::fence::{Fence, Seen};
use super::options::{Modify, Write};
use crate::store::driver_error;
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
/// meanwhile. An upsert by other fields, with a collation or in a session tries an update first, so that a stale upsert
/// creates no second document.
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
    pub(super) options: O,
    documents: Collection<Document>,
    fence: Fence,
    query: Document,
    change: Result<O::Change, LockError>,
    session: Option<&'a mut ClientSession>,
}

impl<O: Write> FencedWrite<'static, O> {
    pub(super) fn new<T>(
        collection: &FencedCollection<T>,
        query: Document,
        change: Result<O::Change, LockError>,
    ) -> Self {
        Self {
            options: O::default(),
            documents: collection.documents.clone(),
            fence: collection.fence.clone(),
            query,
            change,
            session: None,
        }
    }

    /// Makes the write in this session, and in its transaction if it has one.
    pub fn session<'s>(self, session: impl Into<&'s mut ClientSession>) -> FencedWrite<'s, O> {
        FencedWrite {
            options: self.options,
            documents: self.documents,
            fence: self.fence,
            query: self.query,
            change: self.change,
            session: Some(session.into()),
        }
    }
}

impl<O: Write> FencedWrite<'_, O> {
    /// Sets all options, which are those of the driver, instead of those that were set before.
    pub fn with_options(mut self, options: impl Into<Option<O>>) -> Self {
        self.options = options.into().unwrap_or_default();
        self
    }
}

impl<'a, O: Write> IntoFuture for FencedWrite<'a, O> {
    type Output = Result<O::Result, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let checked = self.fence.check();
        let prepared = checked.and(self.change).map(|change| PreparedWrite {
            options: self.options,
            documents: self.documents,
            fence: self.fence,
            query: self.query,
            change,
        });
        match self.session {
            None => {
                Box::pin(async { task::run_to_end(task::with_reply_limit(O::make(prepared?, None))).await })
            }
            Some(session) => Box::pin(async { O::make(prepared?, Some(session)).await }),
        }
    }
}

impl<O: Write> fmt::Debug for FencedWrite<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedWrite")
            .field("collection", &self.documents.namespace())
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

/// A write whose fence field and change have been checked.
pub struct PreparedWrite<O: Write> {
    pub(super) options: O,
    pub(super) documents: Collection<Document>,
    pub(super) change: O::Change,
    fence: Fence,
    query: Document,
}

/// What the diagnosis of a write that matched no document has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A document without a greater token.
    Open,
}

impl<O: Write> PreparedWrite<O> {
    /// The query, restricted to documents without a greater token.
    pub(super) fn restricted(&self) -> Document {
        self.fence.restrict(&self.query)
    }

    /// Finds out why a write matched no document; the error is `Stale` if a later holder has written the document.
    async fn diagnose(
        &self,
        query: Document,
        find_options: FindOneOptions,
        session: Option<&mut ClientSession>,
    ) -> Result<Found, LockError> {
        let find = self
            .documents
            .find_one(query)
            .with_options(find_options)
            // A secondary may not yet have the document because of which the primary refused the write.
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .projection(doc! { self.fence.field.as_str(): 1 });
        let found = match session {
            Some(session) => find.session(session).await?,
            // A majority may not have it yet either. A transaction uses its own read concern.
            None => find.read_concern(ReadConcern::local()).await?,
        };
        match found
            .map(|document| self.fence.compare_document(&document))
            .transpose()?
        {
            None => Ok(Found::Nothing),
            Some(Seen::NotLater) => Ok(Found::Open),
            Some(Seen::Later(seen)) => {
                meter::stale_write();
                trace::stale(&self.documents.namespace(), self.fence.token, seen);
                Err(self.fence.stale(seen))
            }
        }
    }

    /// Finds the document with these values, with which an insertion has collided; the error is `Stale` if a later
    /// holder has written it. A collision ends a transaction, in which nothing can be read afterwards.
    async fn diagnose_collision(
        &self,
        values: Document,
        collision: &Error,
        session: Option<&mut ClientSession>,
    ) -> Result<Found, LockError> {
        let in_session = session.is_some();
        match self.diagnose(values, FindOneOptions::default(), session).await {
            Err(LockError::Mongo(_)) if in_session => Err(collision.clone().into()),
            result => result,
        }
    }
}

impl PreparedWrite<InsertOneOptions> {
    pub(super) async fn insert(
        self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<InsertOneResult, LockError> {
        let insert = self.documents.insert_one(&self.change);
        let insert = insert.with_options(self.options.clone());
        let inserted = match session.as_deref_mut() {
            Some(session) => insert.session(session).await,
            None => insert.await,
        };
        match (inserted, self.change.get("_id")) {
            (Ok(result), _) => Ok(result),
            (Err(error), Some(id)) if driver_error::is_duplicate_key(&error) => {
                self.diagnose_collision(doc! { "_id": id }, &error, session)
                    .await?;
                Err(error.into())
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl<O: Modify> PreparedWrite<O> {
    pub(super) async fn modify(
        self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<O::Result, LockError> {
        // Two documents cannot have the same `_id`, so the upsert of a stale holder collides. By other fields, or by an
        // `_id` that is equal to another only under a collation, it could insert a second document; and a collision
        // would end a transaction. In these cases an update is tried first.
        let (upserts, find_options) = (self.options.upserts(), self.options.find_options());
        let by_id = names_id(&self.query) && find_options.collation.is_none();
        let mut insert = upserts && session.is_none() && by_id;
        for _ in 0..ROUNDS {
            if insert {
                match self.upsert(session.as_deref_mut()).await? {
                    Upserted::Made(result) => return Ok(result),
                    Upserted::Overtaken => {}
                }
            }
            let result = O::send(&self, false, session.as_deref_mut()).await?;
            if O::matched(&result) {
                return Ok(result);
            }
            let found = self
                .diagnose(self.query.clone(), find_options.clone(), session.as_deref_mut())
                .await?;
            if found == Found::Nothing && !upserts {
                return Ok(result);
            }
            insert = upserts && found == Found::Nothing;
        }
        // Other clients keep creating and deleting the document.
        Ok(O::send(&self, upserts, session).await?)
    }

    /// Makes one upsert. If it collides, the server says with which values. If the query asks for just these, it is the
    /// document of the query: a later holder has written it, or it does not match the other conditions, or another
    /// client has just inserted it. Any other collision has nothing to do with the fence.
    async fn upsert(
        &self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<Upserted<O::Result>, LockError> {
        let collision = match O::send(self, true, session.as_deref_mut()).await {
            Ok(result) => return Ok(Upserted::Made(result)),
            Err(error) if driver_error::is_duplicate_key(&error) => error,
            Err(error) => return Err(error.into()),
        };
        let Some(wanted) = driver_error::colliding_values(&collision).filter(|values| self.asks_for(values))
        else {
            return Err(collision.into());
        };
        let has_more_conditions = self.query.len() > wanted.len();
        let found = self
            .diagnose_collision(wanted, &collision, session.as_deref_mut())
            .await?;
        if found == Found::Open && has_more_conditions {
            let result = O::send(self, false, session).await?;
            return if O::matched(&result) {
                Ok(Upserted::Made(result))
            } else {
                Err(collision.into())
            };
        }
        Ok(Upserted::Overtaken)
    }

    fn asks_for(&self, values: &Document) -> bool {
        let wanted = |(field, value): (&String, &Bson)| {
            let asked = self.query.get(field);
            asked.is_some_and(|asked| are_equal(asked, value))
        };
        values.iter().all(wanted)
    }
}

/// How an upsert without an error ended.
enum Upserted<R> {
    Made(R),
    /// Another client has just inserted the document.
    Overtaken,
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
    let number = |value: &Bson| match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    };
    one == other || number(one).is_some_and(|one| number(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use mongodb::Client;
    use mongodb::bson::bson;
    use tokio::time::Instant;

    use super::*;
    use crate::timing::DEAD_CONNECTION;
    use crate::{FencedExt, FencingToken};

    /// No reply comes on the connection, and the driver itself would wait for longer.
    #[tokio::test(start_paused = true)]
    async fn a_write_without_a_reply_ends_after_a_minute() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let patient = "connectTimeoutMS=3600000&serverSelectionTimeoutMS=3600000";
        let uri = format!("mongodb://{address}/?directConnection=true&{patient}");
        let client = Client::with_uri_str(uri).await.unwrap();
        let documents = client.database("app").collection::<Document>("documents");
        let begun = Instant::now();
        let writing = documents.fenced(FencingToken::new(1)).insert_one(doc! {});
        let written = writing.await;
        assert!(matches!(written, Err(LockError::Mongo(_))), "{written:?}");
        let waited = begun.elapsed();
        assert!(
            (DEAD_CONNECTION..DEAD_CONNECTION * 2).contains(&waited),
            "{waited:?}"
        );
    }

    #[test]
    fn only_an_equal_id_names_one_document() {
        for one in [
            bson!(1),
            bson!("a"),
            bson!(null),
            bson!({ "tenant": 1, "number": 2 }),
        ] {
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

//! One write: sent, and explained if it was refused.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{FindOneOptions, InsertOneOptions, ReadPreference, SelectionCriteria};
use mongodb::results::InsertOneResult;
use mongodb::{ClientSession, Collection};

use super::FencedCollection;
use super::fence::{Fence, Seen};
use super::options::{Modify, Write};
use crate::{LockError, fault, task, trace};

/// How often a write is made again when the document changes between a refusal and the look at its reason.
const ROUNDS: usize = 3;

/// A write that waits to be awaited, with the options `O` of the driver. Made by
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
///     Err(LockError::Stale { seen, .. }) => println!("too late: {seen} was here"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`LockError::Stale`] if the document has seen a greater token; nothing is changed then.
/// [`LockError::InvalidFence`] if the fence field cannot be used, the write itself would change it, or a document has
/// something in it that is no token; nothing is changed either. [`LockError::Mongo`] for the driver's errors.
///
/// # Cost
///
/// One command. Where nothing fits, a second one looks whether there is nothing or a later holder. An upsert whose
/// query does not name an `_id` first tries to update, so that a late one makes no second document.
///
/// # Cancel safety
///
/// Without a session the write goes on if the future is dropped after it was first polled: it may be made or refused.
/// With a session it is cut off with its future, as the driver's own writes are; end the transaction then.
///
/// # Panics
///
/// Outside a tokio runtime.
#[must_use = "nothing is written before it is awaited"]
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

    /// Writes in this session, within its transaction if it has one.
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
    /// Takes all of these options, in place of those that were set before.
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
        let order = checked.and(self.change).map(|change| Order {
            options: self.options,
            documents: self.documents,
            fence: self.fence,
            query: self.query,
            change,
        });
        match self.session {
            None => Box::pin(async { task::to_end(O::make(order?, None)).await }),
            Some(session) => Box::pin(async { O::make(order?, Some(session)).await }),
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

/// A write with all that belongs to it, checked.
pub struct Order<O: Write> {
    pub(super) options: O,
    pub(super) documents: Collection<Document>,
    pub(super) change: O::Change,
    fence: Fence,
    query: Document,
}

/// What there is at the place of a write that met nothing.
enum Found {
    Nothing,
    /// A document that the write should have met: it has changed in between.
    Open,
}

impl<O: Write> Order<O> {
    /// The query for documents only that have seen no later holder.
    pub(super) fn restricted(&self) -> Document {
        self.fence.restrict(&self.query)
    }

    /// Why a write has met nothing; `Stale` if a later holder was there.
    async fn look(
        &self,
        query: Document,
        finding: FindOneOptions,
        session: Option<&mut ClientSession>,
    ) -> Result<Found, LockError> {
        let find = self
            .documents
            .find_one(query)
            .with_options(finding)
            // A secondary may not know yet what the primary has refused.
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .projection(doc! { self.fence.field.as_str(): 1 });
        let found = match session {
            Some(session) => find.session(session).await?,
            None => find.await?,
        };
        match found.map(|document| self.fence.look_at(&document)).transpose()? {
            None => Ok(Found::Nothing),
            Some(Seen::NotLater) => Ok(Found::Open),
            Some(Seen::Later(seen)) => {
                trace::stale(&self.documents.namespace(), self.fence.token, seen);
                Err(self.fence.stale(seen))
            }
        }
    }
}

impl Order<InsertOneOptions> {
    pub(super) async fn insert(
        self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<InsertOneResult, LockError> {
        let insert = self
            .documents
            .insert_one(&self.change)
            .with_options(self.options.clone());
        let inserted = match session.as_deref_mut() {
            Some(session) => insert.session(session).await,
            None => insert.await,
        };
        let error = match inserted {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        if let Some(id) = self.change.get("_id").filter(|_| fault::is_duplicate_key(&error)) {
            let same = doc! { "_id": id };
            // In a transaction the collision has ended it, and there is nothing to be learned any more.
            if let Err(stale @ LockError::Stale { .. }) =
                self.look(same, FindOneOptions::default(), session).await
            {
                return Err(stale);
            }
        }
        Err(error.into())
    }
}

impl<O: Modify> Order<O> {
    pub(super) async fn modify(
        self,
        mut session: Option<&mut ClientSession>,
    ) -> Result<O::Result, LockError> {
        let upserts = self.options.upserts();
        // Two documents cannot have one `_id`: a late upsert collides. By other fields it could make a second document,
        // and within a transaction a collision would end that.
        let mut insert = upserts && session.is_none() && names_id(&self.query);
        let mut round = 1;
        loop {
            let mut collision = None;
            if insert {
                match O::send(&self, true, session.as_deref_mut()).await {
                    Ok(result) => return Ok(result),
                    Err(error) if fault::is_duplicate_key(&error) => collision = Some(error),
                    Err(error) => return Err(error.into()),
                }
            }
            let result = O::send(&self, false, session.as_deref_mut()).await?;
            if O::has_met(&result) {
                return Ok(result);
            }
            let (query, finding) = (self.query.clone(), self.options.finding());
            let found = self.look(query, finding, session.as_deref_mut()).await?;
            let is_missing = matches!(found, Found::Nothing) && !upserts;
            if is_missing || round == ROUNDS {
                // A collision that is left has met another unique key.
                return collision.map_or(Ok(result), |error| Err(error.into()));
            }
            insert = upserts && matches!(found, Found::Nothing);
            round += 1;
        }
    }
}

/// Whether the query is for the document of one `_id`.
fn names_id(query: &Document) -> bool {
    match query.get("_id") {
        None | Some(Bson::RegularExpression(_)) => false,
        Some(Bson::Document(operators)) => operators.keys().all(|key| key == "$eq" || !key.starts_with('$')),
        Some(_) => true,
    }
}

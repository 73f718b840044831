//! Fenced writes to MongoDB: a document refuses the writes of a stale holder.

mod encode;
mod field;
mod kinds;
mod value;
mod write;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::options::{
    CollectionOptions, DeleteOptions, InsertOneOptions, ReplaceOptions, UpdateModifications, UpdateOptions,
    WriteConcern,
};
use serde::Serialize;

use crate::{FencingToken, LockError};
use field::Fence;
use kinds::{PreparedWrite, Write};
pub use value::Fenced;
pub use write::FencedWrite;

/// Extension trait that adds [`fenced`](Self::fenced) to the driver's [`Collection`].
pub trait FencedExt<T: Send + Sync> {
    /// Makes a collection whose writes carry this fencing token, that of the hold under which they are made.
    ///
    /// ```no_run
    /// use mongodb::bson::{Document, doc};
    /// use mongolock::{FencedExt, LockContext};
    ///
    /// # type Error = Box<dyn std::error::Error + Send + Sync>;
    /// # async fn example(reports: mongodb::Collection<Document>, lock: LockContext) -> Result<(), Error> {
    /// let changed = reports
    ///     .fenced(lock.fencing_token())
    ///     .update_one(doc! { "_id": 42 }, doc! { "$set": { "title": "new" } })
    ///     .await?;
    /// assert_eq!(changed.matched_count, 1);
    /// # Ok(())
    /// # }
    /// ```
    fn fenced(&self, token: FencingToken) -> FencedCollection<T>;
}

impl<T: Send + Sync> FencedExt<T> for Collection<T> {
    fn fenced(&self, token: FencingToken) -> FencedCollection<T> {
        let field = "fencingToken".to_owned();
        FencedCollection {
            documents: with_majority(self),
            fence: Fence { token, field },
            written: PhantomData,
        }
    }
}

/// A collection whose documents store the greatest fencing token that has written them, and refuse writes with a
/// smaller token with [`LockError::Stale`].
///
/// A lease alone cannot prevent the late write of a stale holder, whose process was paused beyond its lease. The
/// fencing token can ([Kleppmann, *How to do distributed
/// locking*](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)). It is stored in one field of
/// the document, `fencingToken` unless [`fence_field`](Self::fence_field) sets another. One atomic command compares the
/// tokens and writes. A document without the field accepts every token.
///
/// The methods are those of the driver's [`Collection`], with its options and its results. Each returns a
/// [`FencedWrite`], which is awaited. As with the driver, a query that matches no document is a result and not an
/// error. Only a document that matches and has a greater token is the error `Stale`.
///
/// - **Name one document.** The query should name it by `_id` or by the fields of a unique index, as for every upsert.
///   If several documents match, the write changes one of them whose token is not greater. A document that does not match
///   the query is not found, even if a newer holder has changed it.
/// - **An update or a pipeline must not write the fence field**: that is
///   [`LockError::InvalidFence`]. A document to insert, or to replace another one with,
///   may contain the field from an earlier read, if its token is not greater than the holder's own.
/// - **Deleting a document deletes its token.** Where a stale holder must not insert the document again, mark it as
///   deleted with an update, and remove it with a TTL index after a time longer than any pause.
/// - **There is no `update_many`, `delete_many` or `insert_many`.** A command for many documents is not atomic: it
///   would write those without a greater token and skip the others, so that neither success nor `Stale` would be
///   correct. Write the documents one by one, or in a transaction (each write takes a
///   [`session`](FencedWrite::session)), which commits all of them or none.
///
/// Writes have majority write concern, whatever the collection's own write concern is: a rollback after a failover
/// removes a write together with its token, and the document would accept an earlier holder again. The `wtimeout` and
/// `journal: true` of the collection are kept. A write concern that [`with_options`](FencedWrite::with_options) sets
/// for one write is used as it is. In a transaction the write concern of the commit applies: set it to majority.
///
/// All writers must write through a `FencedCollection`, with tokens of the same lock. A type that rejects unknown
/// fields must have the fence field in order to read the documents.
///
/// A document accepts the writes of an earlier holder until the newer holder has written it. The guide shows how to
/// [claim it before reading](crate::guide::fencing#claim-before-you-read).
pub struct FencedCollection<T> {
    documents: Collection<Document>,
    fence: Fence,
    /// The type of the documents that are written; no value of it is stored.
    written: PhantomData<fn(&T)>,
}

impl<T: Send + Sync> FencedCollection<T> {
    /// Stores the token in this top-level field instead of `fencingToken`. The name must not be empty or `_id`, begin
    /// with `$`, or contain `.` or a NUL byte.
    ///
    /// With an invalid name each write returns [`LockError::InvalidFence`].
    #[must_use = "the field is set for the returned collection only"]
    pub fn fence_field(mut self, field: impl Into<String>) -> Self {
        self.fence.field = field.into();
        self
    }

    /// Inserts a document with the token. The result is an [`InsertOneResult`](mongodb::results::InsertOneResult).
    ///
    /// If a document with the same `_id` exists and has a greater token, the error is `Stale`. Any other duplicate key is
    /// the driver's own error: that of an `_id` whose document has no greater token, and that of another unique index. In a
    /// transaction each duplicate key is the driver's error, and ends the transaction.
    pub fn insert_one(&self, document: impl Borrow<T>) -> FencedWrite<'static, InsertOneOptions>
    where
        T: Serialize,
    {
        let document = encode::document(document.borrow()).and_then(|new| self.fence.mark(new));
        let id = document.as_ref().ok().and_then(|new| new.get("_id"));
        self.write(id.map(|id| doc! { "_id": id }).unwrap_or_default(), document)
    }

    /// Updates a document with update operators or a pipeline. The result is an
    /// [`UpdateResult`](mongodb::results::UpdateResult). With [`upsert`](FencedWrite::upsert), a document is inserted
    /// if none matches.
    pub fn update_one(
        &self,
        query: Document,
        update: impl Into<UpdateModifications>,
    ) -> FencedWrite<'static, UpdateOptions> {
        self.write(query, self.fence.add_to(update.into()))
    }

    /// Replaces a whole document. The result is an [`UpdateResult`](mongodb::results::UpdateResult). With
    /// [`upsert`](FencedWrite::upsert), the document is inserted if none matches.
    pub fn replace_one(
        &self,
        query: Document,
        replacement: impl Borrow<T>,
    ) -> FencedWrite<'static, ReplaceOptions>
    where
        T: Serialize,
    {
        let document = encode::document(replacement.borrow()).and_then(|new| self.fence.mark(new));
        self.write(query, document)
    }

    /// Deletes a document together with its token. The result is a [`DeleteResult`](mongodb::results::DeleteResult).
    pub fn delete_one(&self, query: Document) -> FencedWrite<'static, DeleteOptions> {
        self.write(query, Ok(()))
    }

    fn write<O: Write>(
        &self,
        query: Document,
        change: Result<O::Change, LockError>,
    ) -> FencedWrite<'static, O> {
        let prepared = self.fence.check().and(change).map(|change| PreparedWrite {
            options: O::default(),
            documents: self.documents.clone(),
            fence: self.fence.clone(),
            query,
            change,
        });
        let session = None;
        FencedWrite { prepared, session }
    }
}

/// The same collection with majority write concern: a write that fewer members have can be rolled back after a
/// failover, together with its token. The concern is a default of the collection, so that the driver prefers the write
/// concern of a call, and sends none with the statements of a transaction.
fn with_majority<T: Send + Sync>(collection: &Collection<T>) -> Collection<Document> {
    let mut options = CollectionOptions::default();
    options.selection_criteria = collection.selection_criteria().cloned();
    options.read_concern = collection.read_concern().cloned();
    // With the time limit of the collection's own write concern, and with its `journal` if that is `true`.
    let own = collection.write_concern();
    let mut concern = WriteConcern::majority();
    concern.w_timeout = own.and_then(|own| own.w_timeout);
    concern.journal = own.and_then(|own| own.journal).filter(|journal| *journal);
    options.write_concern = Some(concern);
    let namespace = collection.namespace();
    let database = collection.client().database(&namespace.db);
    database.collection_with_options(&namespace.coll, options)
}

impl<T> Clone for FencedCollection<T> {
    fn clone(&self) -> Self {
        Self {
            documents: self.documents.clone(),
            fence: self.fence.clone(),
            written: PhantomData,
        }
    }
}

impl<T> fmt::Debug for FencedCollection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedCollection").finish_non_exhaustive()
    }
}

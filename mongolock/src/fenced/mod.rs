//! Fenced writes: the writes of a stale holder are refused.

mod concern;
mod encode;
mod fence;
mod options;
mod value;
mod write;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;

use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::options::{DeleteOptions, InsertOneOptions, ReplaceOptions, UpdateModifications, UpdateOptions};
use serde::Serialize;

use crate::FencingToken;
use fence::Fence;
pub use value::Fenced;
pub use write::FencedWrite;

/// Gives a collection the writes of a holder: bring it into scope and call [`fenced`](Self::fenced).
pub trait FencedExt<T: Send + Sync> {
    /// The collection for the holder of this token.
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
        FencedCollection {
            documents: concern::with_majority(self),
            fence: Fence::new(token),
            written: PhantomData,
        }
    }
}

/// A collection whose documents remember the greatest fencing token that has written them, and refuse a smaller one
/// with [`LockError::Stale`](crate::LockError::Stale).
///
/// A lease alone cannot stop the late write of a holder that was paused beyond its lease; its token can
/// ([Kleppmann, *How to do distributed locking*](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)).
/// The token travels in one field of the document, `fencingToken` unless [`fence_field`](Self::fence_field) says
/// otherwise. Comparing and writing is one atomic command, so that nothing can come between them. A document without
/// the field has seen no holder yet and accepts every token.
///
/// The methods are those of the driver's [`Collection`], with its options and its results; each gives a
/// [`FencedWrite`] to be awaited. "Nothing found" is a result, as with the driver; "found, but a later holder was here"
/// is the error.
///
/// - **Name one document.** The query should name it by `_id` or by fields of a unique index, as for every upsert. With
///   a query that fits several documents, one is written that has not seen a greater token. What the query does not fit
///   is not found, also where a later holder has changed it.
/// - **An update or a pipeline must not touch the fence field**: that is
///   [`LockError::InvalidFence`](crate::LockError::InvalidFence). A document to insert or to replace with may bring it
///   along from an earlier read, with a token up to the holder's own.
/// - **A document that is deleted forgets its token.** Where a late holder must not bring it back, mark it as deleted
///   with an update, and let a TTL index remove it after longer than any pause.
/// - **There is no `update_many`, no `delete_many` and no `insert_many`.** One command for many documents is not atomic:
///   it would change those that have not seen a later holder and pass over the others, and neither "done" nor "stale"
///   would be a true answer. Write the documents one by one, or in a transaction (each write takes a
///   [`session`](FencedWrite::session)), which is all or nothing.
///
/// Writes have majority write concern, whatever the collection's own is, because a rollback after a failover removes the
/// token together with the write: the document would accept an earlier holder again. The collection's `wtimeout` and
/// `journal: true` are kept. A [`write_concern`](FencedWrite::write_concern) set for one write is used as it is, and in a
/// transaction that of its commit decides: set majority there.
///
/// All writers have to go through the fence, and all of them with tokens of the same lock. A type that refuses unknown
/// fields has to know the fence field in order to read the documents.
///
/// A document accepts the writes of earlier holders until it is written: the guide says how to
/// [claim it before reading](crate::guide::fencing#claim-before-you-read).
pub struct FencedCollection<T> {
    documents: Collection<Document>,
    fence: Fence,
    /// The type of the documents that are written; no value of it is kept.
    written: PhantomData<fn(&T)>,
}

impl<T: Send + Sync> FencedCollection<T> {
    /// Keeps the token in this field instead of `fencingToken`: a name at the top of the document, without dots.
    ///
    /// A name that cannot be used is an error of each write.
    #[must_use]
    pub fn fence_field(mut self, field: impl Into<String>) -> Self {
        self.fence.field = field.into();
        self
    }

    /// The token that the writes carry.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.fence.token
    }

    /// Inserts a document, which thereby has seen the token. Gives an
    /// [`InsertOneResult`](mongodb::results::InsertOneResult).
    ///
    /// If there is one with its `_id`, the error is `Stale` if that has seen a greater token, and the driver's own
    /// (a duplicate key) if not, if another unique key collides, and always in a transaction, which it ends.
    pub fn insert_one(&self, document: impl Borrow<T>) -> FencedWrite<'static, InsertOneOptions>
    where
        T: Serialize,
    {
        let document = encode::document(document.borrow()).and_then(|new| self.fence.mark(new));
        FencedWrite::new(self, Document::new(), document)
    }

    /// Updates a document, by operators or by a pipeline. Gives an
    /// [`UpdateResult`](mongodb::results::UpdateResult); with [`upsert`](FencedWrite::upsert) it inserts what is
    /// missing.
    pub fn update_one(
        &self,
        query: Document,
        update: impl Into<UpdateModifications>,
    ) -> FencedWrite<'static, UpdateOptions> {
        FencedWrite::new(self, query, self.fence.add_to(update.into()))
    }

    /// Replaces a document as a whole. Gives an [`UpdateResult`](mongodb::results::UpdateResult); with
    /// [`upsert`](FencedWrite::upsert) it inserts what is missing.
    pub fn replace_one(
        &self,
        query: Document,
        replacement: impl Borrow<T>,
    ) -> FencedWrite<'static, ReplaceOptions>
    where
        T: Serialize,
    {
        let document = encode::document(replacement.borrow()).and_then(|new| self.fence.mark(new));
        FencedWrite::new(self, query, document)
    }

    /// Deletes a document, and with it the memory of its token. Gives a
    /// [`DeleteResult`](mongodb::results::DeleteResult).
    pub fn delete_one(&self, query: Document) -> FencedWrite<'static, DeleteOptions> {
        FencedWrite::new(self, query, Ok(()))
    }
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
        f.debug_struct("FencedCollection")
            .field("collection", &self.documents.namespace())
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

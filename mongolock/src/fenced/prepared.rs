//! A kind of write, and a write of that kind that can be sent.

use std::future::Future;

use mongodb::bson::Document;
use mongodb::error::Error;
use mongodb::options::FindOneOptions;
use mongodb::{ClientSession, Collection};

use super::fence::Fence;
use crate::LockError;

/// A kind of write, identified by the type of its options.
pub trait Write: Default + Clone + Send + Sync + 'static {
    /// The document or the update that is written.
    type Change: Clone + Send + Sync + 'static;
    /// The driver's result.
    type Result: Send + 'static;

    /// Makes the write; the error says why it was refused.
    fn make(
        prepared: PreparedWrite<Self>,
        session: Option<&mut ClientSession>,
    ) -> impl Future<Output = Result<Self::Result, LockError>> + Send;
}

/// A kind of write that changes a document which matches a query.
pub trait Modify: Write {
    /// Sends the write as one command. With `upsert` it inserts a document if none matches.
    fn send(
        prepared: &PreparedWrite<Self>,
        upsert: bool,
        session: Option<&mut ClientSession>,
    ) -> impl Future<Output = Result<Self::Result, Error>> + Send;

    /// Whether the write matched a document or inserted one.
    fn matched(result: &Self::Result) -> bool;

    /// Whether the caller has asked for an upsert.
    fn upserts(&self) -> bool;

    /// The options with which a query matches the same documents as the write.
    fn find_options(&self) -> FindOneOptions;
}

/// A write whose fence field and change have been checked.
pub struct PreparedWrite<O: Write> {
    pub(super) options: O,
    pub(super) documents: Collection<Document>,
    pub(super) fence: Fence,
    pub(super) query: Document,
    pub(super) change: O::Change,
}

impl<O: Write> PreparedWrite<O> {
    /// The query, restricted to documents without a greater token.
    pub(super) fn restricted(&self) -> Document {
        self.fence.restrict(&self.query)
    }
}

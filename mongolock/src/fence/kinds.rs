//! The kinds of writes, each with the driver's options, its method and its result.

use std::future::Future;

use mongodb::bson::Document;
use mongodb::error::Error;
use mongodb::options::{
    DeleteOptions, FindOneOptions, InsertOneOptions, ReplaceOptions, UpdateModifications, UpdateOptions,
};
use mongodb::results::{DeleteResult, InsertOneResult, UpdateResult};
use mongodb::{ClientSession, Collection};

use super::field::Fence;

/// A kind of write, identified by the type of its options.
pub trait Write: Default + Clone + Send + Sync + 'static {
    /// The document or the update that is written.
    type Change: Clone + Send + Sync + 'static;
    /// The driver's result.
    type Result: Send + 'static;

    /// Sends the write as one command with these options.
    fn send(
        write: &PreparedWrite<Self>,
        options: Self,
        session: Option<&mut ClientSession>,
    ) -> impl Future<Output = Result<Self::Result, Error>> + Send;

    /// Whether the write matched a document or inserted one.
    fn has_written(result: &Self::Result) -> bool;

    /// The option by which an update inserts a document if none matches.
    fn upsert(&mut self) -> Option<&mut Option<bool>> {
        None
    }

    /// The options with which a query matches the same documents as the write.
    fn find_options(&self) -> FindOneOptions {
        FindOneOptions::default()
    }
}

/// A write that can insert a document if none matches.
pub trait Upsert: Write {}

impl Upsert for UpdateOptions {}
impl Upsert for ReplaceOptions {}

/// A write whose fence field and change have been checked.
pub struct PreparedWrite<O: Write> {
    pub(super) options: O,
    pub(super) documents: Collection<Document>,
    pub(super) fence: Fence,
    pub(super) query: Document,
    pub(super) change: O::Change,
}

/// Implements a kind with the method of the driver, what its result says, and the options that others have as well.
macro_rules! kind {
    (
        $options:ty: $change:ty => $result:ty,
        |$write:ident| $method:expr,
        |$written:ident| $has_written:expr
        $(, upsert: $upsert:ident)?
        $(, find: $($field:ident)+)?
    ) => {
        impl Write for $options {
            type Change = $change;
            type Result = $result;

            async fn send(
                $write: &PreparedWrite<Self>,
                options: Self,
                session: Option<&mut ClientSession>,
            ) -> Result<$result, Error> {
                let action = $method.with_options(options);
                match session {
                    Some(session) => action.session(session).await,
                    None => action.await,
                }
            }

            fn has_written($written: &$result) -> bool {
                $has_written
            }

            $(
                fn upsert(&mut self) -> Option<&mut Option<bool>> {
                    Some(&mut self.$upsert)
                }
            )?

            $(
                fn find_options(&self) -> FindOneOptions {
                    let mut options = FindOneOptions::default();
                    $(options.$field.clone_from(&self.$field);)+
                    options
                }
            )?
        }
    };
}

kind! {
    InsertOneOptions: Document => InsertOneResult,
    |write| write.documents.insert_one(&write.change),
    |_result| true
}

kind! {
    UpdateOptions: UpdateModifications => UpdateResult,
    |write| write.documents.update_one(write.fence.restrict(&write.query), write.change.clone()),
    |result| result.matched_count > 0 || result.upserted_id.is_some(),
    upsert: upsert,
    find: collation hint let_vars
}

kind! {
    ReplaceOptions: Document => UpdateResult,
    |write| write.documents.replace_one(write.fence.restrict(&write.query), write.change.clone()),
    |result| result.matched_count > 0 || result.upserted_id.is_some(),
    upsert: upsert,
    find: collation hint let_vars
}

kind! {
    DeleteOptions: () => DeleteResult,
    |write| write.documents.delete_one(write.fence.restrict(&write.query)),
    |result| result.deleted_count > 0,
    find: collation hint let_vars
}

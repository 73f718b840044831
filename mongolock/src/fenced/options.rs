//! The driver's options, each with the kind of write that it belongs to.

use std::future::Future;

use mongodb::ClientSession;
use mongodb::bson::Document;
use mongodb::error::Error;
use mongodb::options::{
    Collation, DeleteOptions, FindOneOptions, Hint, InsertOneOptions, ReplaceOptions, UpdateModifications,
    UpdateOptions,
};
use mongodb::results::{DeleteResult, InsertOneResult, UpdateResult};

use super::write::{FencedWrite, PreparedWrite};
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

impl Write for InsertOneOptions {
    type Change = Document;
    type Result = InsertOneResult;

    async fn make(
        prepared: PreparedWrite<Self>,
        session: Option<&mut ClientSession>,
    ) -> Result<InsertOneResult, LockError> {
        prepared.insert(session).await
    }
}

/// Implements updating and replacing, which differ only in the type of the change and in the driver's method.
macro_rules! update_like {
    ($options:ty: $change:ty, $method:ident) => {
        impl Write for $options {
            type Change = $change;
            type Result = UpdateResult;

            async fn make(
                prepared: PreparedWrite<Self>,
                session: Option<&mut ClientSession>,
            ) -> Result<UpdateResult, LockError> {
                prepared.modify(session).await
            }
        }

        impl Modify for $options {
            async fn send(
                prepared: &PreparedWrite<Self>,
                upsert: bool,
                session: Option<&mut ClientSession>,
            ) -> Result<UpdateResult, Error> {
                let mut options = prepared.options.clone();
                options.upsert = upsert.then_some(true);
                let write = prepared
                    .documents
                    .$method(prepared.restricted(), prepared.change.clone());
                let write = write.with_options(options);
                match session {
                    Some(session) => write.session(session).await,
                    None => write.await,
                }
            }

            fn matched(result: &UpdateResult) -> bool {
                result.matched_count > 0 || result.upserted_id.is_some()
            }

            fn upserts(&self) -> bool {
                self.upsert == Some(true)
            }

            fn find_options(&self) -> FindOneOptions {
                find_options(
                    self.collation.as_ref(),
                    self.hint.as_ref(),
                    self.let_vars.as_ref(),
                )
            }
        }
    };
}

update_like! { UpdateOptions: UpdateModifications, update_one }
update_like! { ReplaceOptions: Document, replace_one }

impl Write for DeleteOptions {
    type Change = ();
    type Result = DeleteResult;

    async fn make(
        prepared: PreparedWrite<Self>,
        session: Option<&mut ClientSession>,
    ) -> Result<DeleteResult, LockError> {
        prepared.modify(session).await
    }
}

impl Modify for DeleteOptions {
    async fn send(
        prepared: &PreparedWrite<Self>,
        _: bool,
        session: Option<&mut ClientSession>,
    ) -> Result<DeleteResult, Error> {
        let delete = prepared.documents.delete_one(prepared.restricted());
        let delete = delete.with_options(prepared.options.clone());
        match session {
            Some(session) => delete.session(session).await,
            None => delete.await,
        }
    }

    fn matched(result: &DeleteResult) -> bool {
        result.deleted_count > 0
    }

    fn upserts(&self) -> bool {
        false
    }

    fn find_options(&self) -> FindOneOptions {
        find_options(
            self.collation.as_ref(),
            self.hint.as_ref(),
            self.let_vars.as_ref(),
        )
    }
}

fn find_options(
    collation: Option<&Collation>,
    hint: Option<&Hint>,
    let_vars: Option<&Document>,
) -> FindOneOptions {
    let mut options = FindOneOptions::default();
    options.collation = collation.cloned();
    options.hint = hint.cloned();
    options.let_vars = let_vars.cloned();
    options
}

macro_rules! upserts {
    ($($options:ty),+) => {
        $(
            impl FencedWrite<'_, $options> {
                /// Inserts a document if none matches the query.
                pub fn upsert(mut self, upsert: bool) -> Self {
                    self.options.upsert = Some(upsert);
                    self
                }
            }
        )+
    };
}

upserts! { UpdateOptions, ReplaceOptions }

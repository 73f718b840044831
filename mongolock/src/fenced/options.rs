//! The driver's options, each with the write it belongs to.

use std::future::Future;

use mongodb::ClientSession;
use mongodb::bson::{Bson, Document};
use mongodb::error::Error;
use mongodb::options::{
    Collation, DeleteOptions, FindOneOptions, Hint, InsertOneOptions, ReplaceOptions, UpdateModifications,
    UpdateOptions, WriteConcern,
};
use mongodb::results::{DeleteResult, InsertOneResult, UpdateResult};

use super::write::{FencedWrite, PreparedWrite};
use crate::LockError;

/// A kind of write, by the type of its options.
pub trait Write: Default + Clone + Send + Sync + 'static {
    /// What is written.
    type Change: Clone + Send + Sync + 'static;
    /// The driver's result.
    type Result: Send + 'static;

    /// Makes the write, or returns why it is refused.
    fn make(
        prepared: PreparedWrite<Self>,
        session: Option<&mut ClientSession>,
    ) -> impl Future<Output = Result<Self::Result, LockError>> + Send;
}

/// A write that looks for a document to change.
pub trait Modify: Write {
    /// Sends it as one command; with `upsert` it inserts a document where it finds none.
    fn send(
        prepared: &PreparedWrite<Self>,
        upsert: bool,
        session: Option<&mut ClientSession>,
    ) -> impl Future<Output = Result<Self::Result, Error>> + Send;

    /// Whether the write matched a document or inserted one.
    fn matched(result: &Self::Result) -> bool;

    /// Whether the caller wants a document inserted where there is none.
    fn upserts(&self) -> bool;

    /// The options with which a query finds the same documents as the write.
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

/// The setters of the driver's own actions: the same names, types and meaning.
macro_rules! setters {
    ($options:ty: $($(#[$doc:meta])* $name:ident: $value:ty;)+) => {
        impl FencedWrite<'_, $options> {
            $(
                $(#[$doc])*
                pub fn $name(mut self, value: $value) -> Self {
                    self.options.$name = Some(value);
                    self
                }
            )+
        }
    };
}

setters! { InsertOneOptions:
    /// Does without the validation of documents.
    bypass_document_validation: bool;
    /// Waits for as many members as this says, instead of for a majority. Not in a transaction.
    write_concern: WriteConcern;
    /// A comment for logs and profiles.
    comment: Bson;
}

setters! { UpdateOptions:
    /// Inserts a document if there is none that fits the query.
    upsert: bool;
    /// Which elements of an array to change.
    array_filters: Vec<Document>;
    /// Does without the validation of documents.
    bypass_document_validation: bool;
    /// How strings are compared.
    collation: Collation;
    /// The index to use.
    hint: Hint;
    /// Waits for as many members as this says, instead of for a majority. Not in a transaction.
    write_concern: WriteConcern;
    /// Values for the expressions of the query and of the update.
    let_vars: Document;
    /// A comment for logs and profiles.
    comment: Bson;
    /// Which document to take of several. MongoDB 8.0 and later.
    sort: Document;
}

setters! { ReplaceOptions:
    /// Inserts the document if there is none that fits the query.
    upsert: bool;
    /// Does without the validation of documents.
    bypass_document_validation: bool;
    /// How strings are compared.
    collation: Collation;
    /// The index to use.
    hint: Hint;
    /// Waits for as many members as this says, instead of for a majority. Not in a transaction.
    write_concern: WriteConcern;
    /// Values for the expressions of the query.
    let_vars: Document;
    /// A comment for logs and profiles.
    comment: Bson;
    /// Which document to take of several. MongoDB 8.0 and later.
    sort: Document;
}

setters! { DeleteOptions:
    /// How strings are compared.
    collation: Collation;
    /// The index to use.
    hint: Hint;
    /// Waits for as many members as this says, instead of for a majority. Not in a transaction.
    write_concern: WriteConcern;
    /// Values for the expressions of the query.
    let_vars: Document;
    /// A comment for logs and profiles.
    comment: Bson;
}

//! The driver's options, each with the kind of write that it belongs to.

use mongodb::ClientSession;
use mongodb::bson::Document;
use mongodb::error::Error;
use mongodb::options::{
    Collation, DeleteOptions, FindOneOptions, Hint, InsertOneOptions, ReplaceOptions, UpdateModifications,
    UpdateOptions,
};
use mongodb::results::{DeleteResult, InsertOneResult, UpdateResult};

use super::prepared::{Modify, PreparedWrite, Write};
use crate::LockError;

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

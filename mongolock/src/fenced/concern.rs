//! The write concern of fenced writes.

use mongodb::Collection;
use mongodb::bson::Document;
use mongodb::options::{CollectionOptions, WriteConcern};

/// The same collection with majority write concern: a write that fewer members have can be rolled back after a
/// failover, together with its token. The concern is a default of the collection, so that the driver prefers the write
/// concern of a call, and sends none with the statements of a transaction.
pub(super) fn with_majority<T: Send + Sync>(collection: &Collection<T>) -> Collection<Document> {
    let mut options = CollectionOptions::default();
    options.selection_criteria = collection.selection_criteria().cloned();
    options.read_concern = collection.read_concern().cloned();
    options.write_concern = Some(strengthened(collection.write_concern()));
    let namespace = collection.namespace();
    let database = collection.client().database(&namespace.db);
    database.collection_with_options(&namespace.coll, options)
}

/// Majority, with the time limit of the collection's own write concern, and with its `journal` if that is `true`.
fn strengthened(own: Option<&WriteConcern>) -> WriteConcern {
    let mut concern = WriteConcern::majority();
    if let Some(own) = own {
        concern.w_timeout = own.w_timeout;
        concern.journal = own.journal.filter(|journal| *journal);
    }
    concern
}

//! The work items in MongoDB. They contain nothing about locks, except the token of the session that saved them last.

use anyhow::Context;
use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use mongodb::options::{CollectionOptions, IndexOptions, ReadPreference, SelectionCriteria, WriteConcern};
use mongodb::{Collection, Database, IndexModel};
use mongolock::FencingToken;
use serde::{Deserialize, Serialize};

/// One item, with a number that users can type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    #[serde(rename = "_id")]
    pub(crate) id: ObjectId,
    pub(crate) number: u32,
    pub(crate) text: String,
    /// The session that saved it; `None` before that.
    pub(crate) saved_by: Option<String>,
    /// The token that fenced writes compare and set; `None` before the first save.
    pub(crate) fencing_token: Option<FencingToken>,
}

/// The items of a database.
#[derive(Debug, Clone)]
pub(crate) struct Items(Collection<Item>);

impl Items {
    pub(crate) const COLLECTION: &str = "work_items";

    /// The settings of the client do not apply: the holder of a lock reads what was saved last, and no failover undoes a
    /// save.
    pub(crate) fn new(database: &Database) -> Self {
        let options = CollectionOptions::builder()
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .write_concern(WriteConcern::majority())
            .build();
        Self(database.collection_with_options(Self::COLLECTION, options))
    }

    pub(crate) fn collection(&self) -> &Collection<Item> {
        &self.0
    }

    /// Creates the items 1 to `last`; existing ones stay as they are.
    pub(crate) async fn create(&self, last: u32) -> anyhow::Result<()> {
        let unique = IndexOptions::builder().unique(true).build();
        let index = IndexModel::builder().keys(doc! { "number": 1 }).options(unique);
        let what = "cannot create the work items";
        self.0.create_index(index.build()).await.context(what)?;
        for number in 1..=last {
            let new = doc! { "$setOnInsert": { "text": format!("draft of item {number}") } };
            let created = self.0.update_one(doc! { "number": number }, new).upsert(true);
            created.await.context(what)?;
        }
        Ok(())
    }

    /// The id of the item with this number.
    pub(crate) async fn id(&self, number: u32) -> anyhow::Result<ObjectId> {
        let found = self.0.find_one(doc! { "number": number }).await;
        let item = found.with_context(|| format!("cannot look for item {number}"))?;
        Ok(item.with_context(|| format!("there is no item {number}"))?.id)
    }

    pub(crate) async fn read(&self, id: ObjectId) -> anyhow::Result<Item> {
        let found = self.0.find_one(doc! { "_id": id }).await;
        found
            .with_context(|| format!("cannot read the item {id}"))?
            .with_context(|| format!("the item {id} does not exist"))
    }
}

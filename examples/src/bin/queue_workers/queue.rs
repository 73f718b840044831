//! The queue of messages in MongoDB: read in order, and marked when they are in their file.

use anyhow::Context;
use mongodb::bson::doc;
use mongodb::options::IndexOptions;
use mongodb::{Collection, Database, IndexModel};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    #[serde(rename = "type")]
    pub(crate) data_type: String,
    /// The number of the message within its type, from 1.
    pub(crate) sequence: u32,
    pub(crate) text: String,
    pub(crate) done: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Queue(Collection<Message>);

impl Queue {
    pub(crate) fn new(database: &Database) -> Self {
        Self(database.collection("messages"))
    }

    /// Puts messages of each of these types into the queue.
    pub(crate) async fn fill(&self, types: &[&str], messages: u32) -> anyhow::Result<()> {
        let unique = IndexOptions::builder().unique(true).build();
        let keys = doc! { "type": 1, "sequence": 1 };
        let index = IndexModel::builder().keys(keys).options(unique).build();
        let what = "cannot fill the queue";
        self.0.create_index(index).await.context(what)?;
        let message = |data_type: &str, sequence| Message {
            data_type: data_type.to_owned(),
            sequence,
            text: format!("{data_type}, number {sequence}: {} articles", sequence % 7 + 1),
            done: false,
        };
        let all = (1..=messages)
            .flat_map(|sequence| types.iter().map(move |data_type| message(data_type, sequence)));
        self.0.insert_many(all).await.context(what)?;
        Ok(())
    }

    /// The first messages after this one, in order; all of them if the limit is 0.
    pub(crate) async fn after(
        &self,
        data_type: &str,
        sequence: u32,
        limit: i64,
    ) -> anyhow::Result<Vec<Message>> {
        let what = "cannot read the queue";
        let filter = doc! { "type": data_type, "sequence": { "$gt": sequence } };
        let found = self.0.find(filter).sort(doc! { "sequence": 1 }).limit(limit);
        let mut found = found.await.context(what)?;
        let mut messages = Vec::new();
        while found.advance().await.context(what)? {
            messages.push(found.deserialize_current().context(what)?);
        }
        Ok(messages)
    }

    /// Marks the messages up to this one, which are in their file.
    pub(crate) async fn mark_done(&self, data_type: &str, sequence: u32) -> anyhow::Result<()> {
        let filter = doc! { "type": data_type, "sequence": { "$lte": sequence }, "done": false };
        let marked = self
            .0
            .update_many(filter, doc! { "$set": { "done": true } })
            .await;
        marked.context("cannot mark messages as done")?;
        Ok(())
    }
}

//! The record of the work in MongoDB: which process worked at which type, and when.

use anyhow::Context;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Collection, Database};
use serde::Deserialize;

/// One batch. Both times are of the one clock that all processes share, the server's.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Batch {
    #[serde(rename = "type")]
    pub(crate) data_type: String,
    pub(crate) process: u32,
    begun: DateTime,
    /// `None` if the process was killed or lost the lock in the middle.
    ended: Option<DateTime>,
}

#[derive(Debug, Clone)]
pub(crate) struct Batches {
    batches: Collection<Batch>,
}

impl Batches {
    pub(crate) fn new(database: &Database) -> Self {
        Self {
            batches: database.collection("batches"),
        }
    }

    /// Notes the beginning, after the lock was acquired.
    pub(crate) async fn begin(&self, data_type: &str, process: u32) -> anyhow::Result<ObjectId> {
        let id = ObjectId::new();
        let begun = doc! { "type": data_type, "process": process, "begun": "$$NOW" };
        self.note(id, begun).await?;
        Ok(id)
    }

    /// Notes the end, before the lock is released.
    pub(crate) async fn end(&self, id: ObjectId) -> anyhow::Result<()> {
        self.note(id, doc! { "ended": "$$NOW" }).await
    }

    async fn note(&self, id: ObjectId, fields: Document) -> anyhow::Result<()> {
        let update = vec![doc! { "$set": fields }];
        let noted = self
            .batches
            .update_one(doc! { "_id": id }, update)
            .upsert(true)
            .await;
        noted.map(drop).context("cannot note a batch")
    }

    pub(crate) async fn all(&self) -> anyhow::Result<Vec<Batch>> {
        let mut batches = Vec::new();
        let mut found = self
            .batches
            .find(doc! {})
            .await
            .context("cannot read the batches")?;
        while found.advance().await? {
            batches.push(found.deserialize_current()?);
        }
        Ok(batches)
    }
}

impl Batch {
    /// Whether the two were worked at at the same time. One without an end has no say: nobody knows when it ended.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (Some(end), Some(other_end)) = (self.ended, other.ended) else {
            return false;
        };
        self.begun < other_end && other.begun < end
    }

    #[cfg(test)]
    pub(crate) fn new(data_type: &str, process: u32, begun: i64, ended: Option<i64>) -> Self {
        Self {
            data_type: data_type.to_owned(),
            process,
            begun: DateTime::from_millis(begun),
            ended: ended.map(DateTime::from_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_batches_that_share_some_time_overlap() {
        let batch = |begun, ended| Batch::new("orders", 1, begun, ended);
        let first = batch(10, Some(20));
        for (other, overlaps) in [
            (batch(20, Some(30)), false),
            (batch(0, Some(10)), false),
            (batch(19, Some(30)), true),
            (batch(12, Some(14)), true),
            (batch(0, Some(90)), true),
            (batch(12, None), false),
        ] {
            assert_eq!(first.overlaps(&other), overlaps, "{other:?}");
            assert_eq!(other.overlaps(&first), overlaps, "{other:?}");
        }
    }
}

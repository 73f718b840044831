//! What the instances write into MongoDB: the runs of the job, and for each call what came of it.

use std::time::Duration;

use anyhow::Context;
use mongodb::bson::{Document, doc};
use mongodb::{Collection, Database};
use mongolock::FencingToken;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::schedule::Tick;

/// A tick for which the job was run. In a real job this is the report itself, or a mark in it.
///
/// Here a second run for a tick would be a second document, so that it would be seen. With the tick as `_id` the
/// server would refuse it, even from an instance that has lost the lock without knowing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) tick: Tick,
    pub(crate) instance: u32,
    /// `None` without the lock.
    pub(crate) token: Option<FencingToken>,
    pub(crate) took: Duration,
}

/// An instance has called the job at a tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) tick: Tick,
    pub(crate) instance: u32,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Ran,
    /// Another instance had the lock.
    Skipped,
    /// The lock was free, but there was nothing left to do.
    Late,
    Failed,
}

#[derive(Debug, Clone)]
pub(crate) struct Store {
    runs: Collection<Run>,
    calls: Collection<Call>,
}

impl Store {
    pub(crate) fn new(database: &Database) -> Self {
        Self {
            runs: database.collection("runs"),
            calls: database.collection("calls"),
        }
    }

    /// The last tick for which the job was run.
    pub(crate) async fn last_done(&self) -> anyhow::Result<Option<Tick>> {
        let last = self.runs.find_one(doc! {}).sort(doc! { "tick": -1 }).await;
        let last = last.context("cannot read what has been done")?;
        Ok(last.map(|run| run.tick))
    }

    pub(crate) async fn add_run(&self, run: &Run) -> anyhow::Result<()> {
        let added = self.runs.insert_one(run).await;
        added.map(drop).context("cannot write what has been done")
    }

    pub(crate) async fn add_call(&self, call: &Call) -> anyhow::Result<()> {
        let added = self.calls.insert_one(call).await;
        added.map(drop).context("cannot report a call")
    }

    pub(crate) async fn runs(&self) -> anyhow::Result<Vec<Run>> {
        all(&self.runs, doc! { "tick": 1 }).await
    }

    pub(crate) async fn calls(&self) -> anyhow::Result<Vec<Call>> {
        all(&self.calls, doc! { "tick": 1, "instance": 1 }).await
    }
}

async fn all<T: DeserializeOwned + Send + Sync>(
    collection: &Collection<T>,
    order: Document,
) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    let mut found = collection.find(doc! {}).sort(order).await?;
    while found.advance().await? {
        all.push(found.deserialize_current()?);
    }
    Ok(all)
}

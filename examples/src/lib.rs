//! What the example programs share: a program from its start to its exit status ([`demo`]), further processes of the
//! same program ([`workers`] starts them, [`worker`] is their side), what they do at the same time ([`turns`]), and the result
//! ([`summary`]); and the files of `queue_workers` ([`fenced_file`]).
//!
//! The programs use pipes and signals of Unix.

#![expect(
    clippy::missing_errors_doc,
    reason = "an error of these helpers ends the program, and its context says what has failed"
)]

pub mod demo;
pub mod fenced_file;
pub mod summary;
pub mod turns;
pub mod worker;
pub mod workers;

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use mongodb::bson::{Document, doc};
use mongodb::{Collection, Cursor};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

/// Writes a line to standard output. Unlike the macro, it does not panic when the reader is gone.
pub fn print(line: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())
        .context("cannot write to standard output")
}

/// A duration for the reader: milliseconds below ten seconds, which most durations here are; otherwise seconds.
#[must_use]
pub fn show(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{} ms", duration.as_millis()),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

/// All documents of a collection, in this order.
pub async fn all<T: DeserializeOwned + Send + Sync>(
    collection: &Collection<T>,
    order: Document,
) -> anyhow::Result<Vec<T>> {
    let found = collection.find(doc! {}).sort(order).await;
    documents(found.with_context(|| format!("cannot read `{}`", collection.name()))?).await
}

/// All documents of a query.
pub async fn documents<T: DeserializeOwned>(mut found: Cursor<T>) -> anyhow::Result<Vec<T>> {
    let mut documents = Vec::new();
    while found.advance().await? {
        documents.push(found.deserialize_current()?);
    }
    Ok(documents)
}

/// Spawns tasks, and waits for all of them.
pub async fn join<F>(tasks: impl IntoIterator<Item = F>) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut tasks: JoinSet<_> = tasks.into_iter().collect();
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task panicked")??;
    }
    Ok(())
}

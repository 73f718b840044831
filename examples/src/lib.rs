//! What the example programs share: a program from its start to its exit status ([`demo`]), further processes of the
//! same program ([`workers`] starts them, [`worker`] is their side), and the result ([`summary`]); and the browsers of one
//! program and its tests ([`browser`]).
//!
//! The programs use pipes and signals of Unix.

pub mod browser;
pub mod demo;
pub mod duration;
pub mod summary;
pub mod turns;
pub mod worker;
pub mod workers;

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

/// Writes a line to standard output. Unlike the macro, it does not panic when the reader is gone.
///
/// # Errors
/// When the line cannot be written.
pub fn print(line: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())
        .context("cannot write to standard output")
}

/// All documents of a collection, in this order.
///
/// # Errors
/// When they cannot be read.
pub async fn all<T: DeserializeOwned + Send + Sync>(
    collection: &Collection<T>,
    order: Document,
) -> anyhow::Result<Vec<T>> {
    let what = || format!("cannot read the collection `{}`", collection.name());
    let mut documents = Vec::new();
    let mut found = collection.find(doc! {}).sort(order).await.with_context(what)?;
    while found.advance().await.with_context(what)? {
        documents.push(found.deserialize_current().with_context(what)?);
    }
    Ok(documents)
}

/// Waits for all tasks.
///
/// # Errors
/// The first error of a task, or its panic.
pub async fn join(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task panicked")??;
    }
    Ok(())
}

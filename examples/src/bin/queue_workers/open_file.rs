//! The file for async code: every step on a thread that may block.
//!
//! When the lock is lost, the body is dropped between two steps, but a step that has begun runs on in its thread. That
//! is why the file asks for the token in each of them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tokio::task::spawn_blocking;

use crate::fenced_file::FencedFile;

/// A [`FencedFile`].
#[derive(Debug)]
pub(crate) struct OpenFile(Arc<FencedFile>);

impl OpenFile {
    pub(crate) async fn open(directory: &Path, name: &str, token: i64) -> anyhow::Result<Self> {
        let (directory, owned) = (directory.to_owned(), name.to_owned());
        let opened = blocking(move || FencedFile::open(&directory, &owned, token)).await;
        Ok(Self(Arc::new(opened.with_context(|| format!("file of {name}"))?)))
    }

    pub(crate) fn committed(&self) -> u32 {
        self.0.committed()
    }

    pub(crate) async fn append(&self, piece: Vec<u8>) -> anyhow::Result<()> {
        let file = Arc::clone(&self.0);
        blocking(move || file.append(&piece)).await
    }

    pub(crate) async fn commit(&self, sequence: u32) -> anyhow::Result<()> {
        let file = Arc::clone(&self.0);
        blocking(move || file.commit(sequence)).await
    }
}

/// Runs what may block on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    spawn_blocking(work)
        .await
        .context("a step on the file panicked")?
}

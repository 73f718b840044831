//! A file that several processes append to, and that rejects a stale writer.
//!
//! A lock is a lease. It cannot stop a process that was paused in the middle of its work, has lost the lock meanwhile,
//! and continues to write. The file itself must reject that: it stores the greatest fencing token that has opened it. A
//! killed process leaves an incomplete record behind: the file knows how many of its bytes are committed.
//!
//! Both are in a second file (`orders.state` beside `orders.log`). Each access to the two files holds the operating
//! system's lock on the second one, for one small write and not for a whole batch: a paused process that held it would
//! block all others. On a network file system that lock must be one that all machines share.
//!
//! | what happens | what follows |
//! |---|---|
//! | a writer is killed before its commit | the next one to open the file removes what was not committed |
//! | a writer is killed after its commit | the next one finds the number of the last message, and continues after it |
//! | a writer is paused, and another one opens the file | each further write of the first is `LockError::Stale` |

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use mongolock::{Fenced, FencingToken};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

/// The file, opened by the holder of a token. Each step runs on a thread that may block.
///
/// When the lock is lost, the body is dropped between two steps, but a step that has begun runs to its end. That is why
/// each step checks the token.
#[derive(Debug)]
pub(crate) struct FencedFile {
    files: Arc<Files>,
    committed: u32,
}

#[derive(Debug)]
struct Files {
    log: File,
    state: File,
    token: FencingToken,
}

/// The content of the second file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// The greatest token that has opened the file.
    token: FencingToken,
    /// The committed bytes of the log.
    length: u64,
    /// The number of the last committed message.
    sequence: u32,
}

impl FencedFile {
    /// Opens the file and creates it if necessary. From now on smaller tokens are rejected, and what an earlier writer
    /// has not committed is gone; in this order and under one lock, because that writer may still be writing.
    pub(crate) async fn open(directory: &Path, name: &str, token: FencingToken) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let state = log.with_extension("state");
        let opened = blocking(move || {
            let files = Files {
                log: open(&log)?,
                state: open(&state)?,
                token,
            };
            let committed = files.exclusively(|state| {
                state.token = token;
                state.write(&files.state)?;
                files.log.set_len(state.length)?;
                Ok(state.sequence)
            })?;
            let files = Arc::new(files);
            Ok(Self { files, committed })
        });
        opened
            .await
            .with_context(|| format!("cannot open the file of {name}"))
    }

    /// The number of the last message that was committed when the file was opened; 0 before the first.
    pub(crate) fn committed(&self) -> u32 {
        self.committed
    }

    /// Writes at the end.
    pub(crate) async fn append(&self, piece: Vec<u8>) -> anyhow::Result<()> {
        let files = Arc::clone(&self.files);
        blocking(move || {
            files.exclusively(|_| {
                let mut log = &files.log;
                log.seek(SeekFrom::End(0))?;
                Ok(log.write_all(&piece)?)
            })
        })
        .await
    }

    /// Makes the appended records permanent, up to the message of this number. The log is synced before the state that
    /// counts it, so that after a crash of the machine no state counts missing bytes.
    pub(crate) async fn commit(&self, sequence: u32) -> anyhow::Result<()> {
        let files = Arc::clone(&self.files);
        blocking(move || {
            files.exclusively(|state| {
                files.log.sync_data()?;
                state.length = files.log.metadata()?.len();
                state.sequence = sequence;
                state.write(&files.state)?;
                Ok(files.state.sync_data()?)
            })
        })
        .await
    }
}

/// Whether a log has bytes that are not committed.
pub(crate) fn has_uncommitted(directory: &Path, name: &str) -> anyhow::Result<bool> {
    let log = directory.join(format!("{name}.log"));
    let state = log.with_extension("state");
    if !log.try_exists()? || !state.try_exists()? {
        return Ok(false);
    }
    let state = File::open(state)?;
    state.lock_shared().context("cannot lock the file")?;
    Ok(log.metadata()?.len() > State::read(&state)?.length)
}

fn open(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    spawn_blocking(step)
        .await
        .context("a step on the file panicked")?
}

impl Files {
    /// Runs a step while no other process uses the files; `LockError::Stale` if the token is smaller than the one that
    /// the state has.
    fn exclusively<T>(&self, step: impl FnOnce(&mut State) -> anyhow::Result<T>) -> anyhow::Result<T> {
        // If the process ends in here, the system releases this lock.
        self.state.lock().context("cannot lock the file")?;
        let done = State::read(&self.state).and_then(|state| {
            let fenced = Fenced::restored(state, state.token);
            fenced.write(self.token, step)?
        });
        self.state.unlock().context("cannot unlock the file")?;
        done
    }
}

impl State {
    /// The state of a log in which nothing was ever written.
    fn empty() -> Self {
        Self {
            token: FencingToken::from(0),
            length: 0,
            sequence: 0,
        }
    }

    fn read(mut file: &File) -> anyhow::Result<Self> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        if text.is_empty() {
            return Ok(Self::empty());
        }
        serde_json::from_str(&text).with_context(|| format!("the state of the file is damaged: {text:?}"))
    }

    /// One write, always of the same length: a killed process has made it or has not.
    fn write(&self, mut file: &File) -> anyhow::Result<()> {
        let state = serde_json::to_string(self)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file.write_all(format!("{state:<100}\n").as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use mongolock::LockError;
    use tempfile::TempDir;

    use super::*;

    async fn open(directory: &TempDir, token: i64) -> FencedFile {
        try_open(directory, token).await.unwrap()
    }

    async fn try_open(directory: &TempDir, token: i64) -> anyhow::Result<FencedFile> {
        FencedFile::open(directory.path(), "orders", FencingToken::from(token)).await
    }

    async fn append(file: &FencedFile, text: &str) -> anyhow::Result<()> {
        file.append(text.as_bytes().to_vec()).await
    }

    fn content(directory: &TempDir) -> String {
        std::fs::read_to_string(directory.path().join("orders.log")).unwrap()
    }

    #[track_caller]
    fn is_stale<T: Debug>(outcome: anyhow::Result<T>) {
        let error = outcome.unwrap_err();
        assert!(
            matches!(
                error.downcast_ref(),
                Some(LockError::Stale { token, seen, .. }) if (token.get(), seen.get()) == (5, 6)
            ),
            "{error:?}"
        );
    }

    /// S4.8: the incomplete record of a killed writer disappears, a committed one stays.
    #[tokio::test]
    async fn uncommitted_bytes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let killed = open(&directory, 5).await;
        assert_eq!(killed.committed(), 0);
        append(&killed, "complete ").await.unwrap();
        killed.commit(1).await.unwrap();
        append(&killed, "incom").await.unwrap();
        assert!(has_uncommitted(directory.path(), "orders").unwrap());
        drop(killed);

        let next = open(&directory, 6).await;
        assert_eq!((next.committed(), content(&directory).as_str()), (1, "complete "));
        assert!(!has_uncommitted(directory.path(), "orders").unwrap());
        append(&next, "again").await.unwrap();
        next.commit(2).await.unwrap();
        assert_eq!(open(&directory, 7).await.committed(), 2);
        assert_eq!(content(&directory), "complete again");
    }

    /// S4.8, S1.20: a writer that was paused continues after the next one has opened the file.
    #[tokio::test]
    async fn each_step_of_a_stale_writer_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let paused = open(&directory, 5).await;
        append(&paused, "old").await.unwrap();
        let next = open(&directory, 6).await;
        is_stale(append(&paused, "stale").await);
        is_stale(paused.commit(1).await);
        is_stale(try_open(&directory, 5).await);
        append(&next, "new").await.unwrap();
        next.commit(1).await.unwrap();
        is_stale(append(&paused, "stale").await);
        assert_eq!(content(&directory), "new");
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let file = tempfile::tempfile().unwrap();
        let greatest = State {
            token: FencingToken::from(i64::MAX),
            length: u64::MAX,
            sequence: u32::MAX,
        };
        assert_eq!(State::read(&file).unwrap(), State::empty());
        for state in [greatest, State::empty()] {
            state.write(&file).unwrap();
            assert_eq!(State::read(&file).unwrap(), state);
            assert_eq!(file.metadata().unwrap().len(), 101);
        }
    }

    #[tokio::test]
    async fn a_damaged_state_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("orders.state"), "5 6").unwrap();
        let error = try_open(&directory, 7).await.unwrap_err();
        assert!(format!("{error:#}").contains("damaged"), "{error:#}");
    }
}

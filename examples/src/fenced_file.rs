//! A file that several processes append to, and that rejects a stale writer.
//!
//! A lock is a lease. It cannot stop a process that was paused in the middle of its work, has lost the lock meanwhile, and
//! continues to write: the file must reject that. A second file (`orders.state` beside `orders.log`) stores the greatest
//! token that has opened the log, and how many bytes of it are committed. Each access holds the operating system's lock on
//! the second file, for one small write and not for a whole batch: a paused process that held it would block all others.
//!
//! | what happens | what follows |
//! |---|---|
//! | a writer is killed before its commit | the next one to open the file removes what was not committed |
//! | a writer is killed after its commit | the next one finds the number of the last message, and continues after it |
//! | a writer is paused, and another one opens the file | each further write of the first is `LockError::Stale` |

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Context;
use mongolock::{Fenced, FencingToken};
use serde::{Deserialize, Serialize};
use tokio::task::block_in_place;

/// The file, opened by the holder of a token. Its methods block, and need a multi-threaded runtime.
#[derive(Debug)]
pub struct FencedFile {
    log: File,
    state: File,
    token: FencingToken,
}

/// The content of the second file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    /// The greatest token that has opened the file.
    token: i64,
    /// The committed bytes of the log.
    length: u64,
    /// The number of the last committed message, 0 before the first.
    sequence: i32,
}

impl FencedFile {
    /// Opens the file, creates it if necessary, and returns the number of the last committed message. From now on smaller
    /// tokens are rejected, and what an earlier writer has not committed is gone; in this order and under one lock, because
    /// that writer may still be writing.
    pub fn open(directory: &Path, name: &str, token: FencingToken) -> anyhow::Result<(Self, i32)> {
        let open = |ending| {
            let path = directory.join(name).with_extension(ending);
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            options
                .open(&path)
                .with_context(|| format!("cannot open {}", path.display()))
        };
        let (log, state) = (open("log")?, open("state")?);
        let file = Self { log, state, token };
        let committed = file.exclusively(|state| {
            state.token = token.get();
            state.write(&file.state)?;
            file.log.set_len(state.length)?;
            Ok(state.sequence)
        })?;
        Ok((file, committed))
    }

    /// Writes at the end.
    pub fn append(&self, piece: &[u8]) -> anyhow::Result<()> {
        self.exclusively(|_| {
            let mut log = &self.log;
            log.seek(SeekFrom::End(0))?;
            Ok(log.write_all(piece)?)
        })
    }

    /// Makes the appended records permanent, up to the message of this number. The log is synced before the state that
    /// counts it, so that after a crash of the machine no state counts missing bytes.
    pub fn commit(&self, sequence: i32) -> anyhow::Result<()> {
        self.exclusively(|state| {
            self.log.sync_data()?;
            state.length = self.log.metadata()?.len();
            state.sequence = sequence;
            state.write(&self.state)?;
            Ok(self.state.sync_data()?)
        })
    }

    /// Runs a step while no other process uses the files; `LockError::Stale` if the token is smaller than the one in the
    /// state. If the process ends in here, the system releases the lock of the file.
    fn exclusively<T>(&self, step: impl FnOnce(&mut State) -> anyhow::Result<T>) -> anyhow::Result<T> {
        block_in_place(|| {
            self.state.lock().context("cannot lock the file")?;
            let done = State::read(&self.state).and_then(|state| {
                let seen = FencingToken::from(state.token);
                Fenced::restored(state, seen).write(self.token, step)?
            });
            self.state.unlock().context("cannot unlock the file")?;
            done
        })
    }
}

impl State {
    fn read(mut file: &File) -> anyhow::Result<Self> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        if text.is_empty() {
            return Ok(Self::default());
        }
        // A damaged one must not open the fence.
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
    use mongolock::LockError;

    use super::*;

    #[test]
    fn a_stale_writer_is_rejected_and_what_is_not_committed_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let open = |token: i64| FencedFile::open(directory.path(), "orders", FencingToken::from(token));
        let is_stale = |error: anyhow::Error| match error.downcast_ref() {
            Some(LockError::Stale { token, seen, .. }) => assert_eq!((token.get(), seen.get()), (5, 6)),
            _ => panic!("{error:?}"),
        };
        let (paused, committed) = open(5).unwrap();
        assert_eq!(committed, 0);
        paused.append(b"complete ").unwrap();
        paused.commit(1).unwrap();
        paused.append(b"incom").unwrap();

        let (next, committed) = open(6).unwrap();
        assert_eq!(committed, 1);
        is_stale(paused.append(b"stale").unwrap_err());
        is_stale(paused.commit(2).unwrap_err());
        is_stale(open(5).unwrap_err());
        next.append(b"again").unwrap();
        next.commit(2).unwrap();
        let text = std::fs::read_to_string(directory.path().join("orders.log")).unwrap();
        assert_eq!((text.as_str(), open(7).unwrap().1), ("complete again", 2));

        std::fs::write(directory.path().join("orders.state"), "5 6").unwrap();
        assert!(open(8).unwrap_err().to_string().contains("damaged"));
    }
}

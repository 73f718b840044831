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

use anyhow::Context;
use mongolock::{Fenced, FencingToken};
use serde::{Deserialize, Serialize};
use tokio::task::block_in_place;

/// The file, opened by the holder of a token. Its methods block, and need a multi-threaded runtime.
///
/// When the lock is lost, the body is dropped at an await point, and a blocking step runs to its end. That is why each
/// step checks the token.
#[derive(Debug)]
pub(crate) struct FencedFile {
    log: File,
    state: File,
    token: FencingToken,
    committed: u32,
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
    pub(crate) fn open(directory: &Path, name: &str, token: FencingToken) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let mut file = Self {
            log: open(&log)?,
            state: open(&log.with_extension("state"))?,
            token,
            committed: 0,
        };
        file.committed = file.exclusively(|state| {
            state.token = token;
            state.write(&file.state)?;
            file.log.set_len(state.length)?;
            Ok(state.sequence)
        })?;
        Ok(file)
    }

    /// The number of the last message that was committed when the file was opened; 0 before the first.
    pub(crate) fn committed(&self) -> u32 {
        self.committed
    }

    /// Writes at the end.
    pub(crate) fn append(&self, piece: &[u8]) -> anyhow::Result<()> {
        self.exclusively(|_| {
            let mut log = &self.log;
            log.seek(SeekFrom::End(0))?;
            Ok(log.write_all(piece)?)
        })
    }

    /// Makes the appended records permanent, up to the message of this number. The log is synced before the state that
    /// counts it, so that after a crash of the machine no state counts missing bytes.
    pub(crate) fn commit(&self, sequence: u32) -> anyhow::Result<()> {
        self.exclusively(|state| {
            self.log.sync_data()?;
            state.length = self.log.metadata()?.len();
            state.sequence = sequence;
            state.write(&self.state)?;
            Ok(self.state.sync_data()?)
        })
    }

    /// Runs a step while no other process uses the files; `LockError::Stale` if the token is smaller than the one in the
    /// state.
    fn exclusively<T>(&self, step: impl FnOnce(&mut State) -> anyhow::Result<T>) -> anyhow::Result<T> {
        block_in_place(|| {
            // If the process ends in here, the system releases this lock.
            self.state.lock().context("cannot lock the file")?;
            let done = State::read(&self.state).and_then(|state| {
                let fenced = Fenced::restored(state, state.token);
                fenced.write(self.token, step)?
            });
            self.state.unlock().context("cannot unlock the file")?;
            done
        })
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
    use mongolock::LockError;
    use tempfile::{TempDir, tempdir};

    use super::*;

    fn open(directory: &TempDir, token: i64) -> anyhow::Result<FencedFile> {
        FencedFile::open(directory.path(), "orders", FencingToken::from(token))
    }

    fn content(directory: &TempDir) -> String {
        std::fs::read_to_string(directory.path().join("orders.log")).unwrap()
    }

    #[track_caller]
    fn is_stale<T>(outcome: anyhow::Result<T>) {
        let error = outcome.err().expect("it is stale");
        let stale = Some((FencingToken::from(5), FencingToken::from(6)));
        let tokens = match error.downcast_ref() {
            Some(LockError::Stale { token, seen, .. }) => Some((*token, *seen)),
            _ => None,
        };
        assert_eq!(tokens, stale, "{error:?}");
    }

    /// S4.8: the incomplete record of a killed writer disappears, a committed one stays.
    #[test]
    fn uncommitted_bytes_are_removed() {
        let directory = tempdir().unwrap();
        let killed = open(&directory, 5).unwrap();
        assert_eq!(killed.committed(), 0);
        killed.append(b"complete ").unwrap();
        killed.commit(1).unwrap();
        killed.append(b"incom").unwrap();
        assert!(has_uncommitted(directory.path(), "orders").unwrap());
        drop(killed);

        let next = open(&directory, 6).unwrap();
        assert_eq!((next.committed(), content(&directory).as_str()), (1, "complete "));
        assert!(!has_uncommitted(directory.path(), "orders").unwrap());
        next.append(b"again").unwrap();
        next.commit(2).unwrap();
        assert_eq!(open(&directory, 7).unwrap().committed(), 2);
        assert_eq!(content(&directory), "complete again");
    }

    /// S4.8, S1.20: a writer that was paused continues after the next one has opened the file.
    #[test]
    fn each_step_of_a_stale_writer_is_rejected() {
        let directory = tempdir().unwrap();
        let paused = open(&directory, 5).unwrap();
        paused.append(b"old").unwrap();
        let next = open(&directory, 6).unwrap();
        is_stale(paused.append(b"stale"));
        is_stale(paused.commit(1));
        is_stale(open(&directory, 5));
        next.append(b"new").unwrap();
        next.commit(1).unwrap();
        is_stale(paused.append(b"stale"));
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

    #[test]
    fn a_damaged_state_is_an_error() {
        let directory = tempdir().unwrap();
        std::fs::write(directory.path().join("orders.state"), "5 6").unwrap();
        let error = open(&directory, 7).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

//! A file that several processes append to, and that refuses a writer who comes too late.
//!
//! A lock is a lease, and no lease can stop a process that was paused in the middle of its work, lost the lock
//! meanwhile, and goes on writing. The file itself must refuse that: it knows the greatest fencing token it has seen.
//! And a process that was killed leaves half a record behind: the file knows how much of it was committed.
//!
//! Both stand in one short line of a second file (`orders.state` beside `orders.log`). Whoever touches the two files
//! holds the operating system's lock on the second one, for the length of one small write and not for a whole batch: a
//! paused process that held it would keep everybody else waiting. On a network file system that lock must be one that
//! all machines share.
//!
//! | what happens | what follows |
//! |---|---|
//! | a writer is killed before its commit | the next one to open the file cuts off what was not committed |
//! | a writer is killed after its commit | the next one finds the sequence number and goes on after it |
//! | a writer is paused, another opens the file | each further write of the first is refused as [`Stale`] |

use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Context;

/// The file, opened by the holder of a token.
#[derive(Debug)]
pub(crate) struct FencedFile {
    log: File,
    state: File,
    token: i64,
    committed: u32,
}

/// What the second file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    /// The greatest token that has opened the file.
    token: i64,
    /// How many bytes of the log are committed.
    length: u64,
    /// The number of the last message among them.
    sequence: u32,
}

/// A writer came too late: a later holder of the lock has opened the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    token: i64,
    seen: i64,
}

impl Error for Stale {}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, seen } = self;
        write!(
            f,
            "the file refuses the fencing token {token}, it has seen {seen}: begin again under a new hold"
        )
    }
}

impl FencedFile {
    /// Opens the file, which begins to exist with that. From now on smaller tokens are refused, and what an earlier
    /// writer had not committed is gone. In this order, and under one lock: it could go on writing otherwise.
    pub(crate) fn open(directory: &Path, name: &str, token: i64) -> anyhow::Result<Self> {
        let open = |kind| {
            let path = directory.join(format!("{name}.{kind}"));
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path);
            file.with_context(|| format!("cannot open {}", path.display()))
        };
        let mut file = Self {
            log: open("log")?,
            state: open("state")?,
            token,
            committed: 0,
        };
        file.committed = file.alone(|seen| {
            State { token, ..seen }.write(&file.state)?;
            file.log.set_len(seen.length)?;
            Ok(seen.sequence)
        })?;
        Ok(file)
    }

    /// The number of the last message that was committed when the file was opened; 0 before the first.
    pub(crate) fn committed(&self) -> u32 {
        self.committed
    }

    /// Writes at the end.
    pub(crate) fn append(&self, piece: &[u8]) -> anyhow::Result<()> {
        self.alone(|_| {
            let mut log = &self.log;
            log.seek(SeekFrom::End(0))?;
            Ok(log.write_all(piece)?)
        })
    }

    /// Makes what was appended last, up to the message of this number. The contents are synced before the word that
    /// they count, so that a crash of the machine leaves no word without its contents.
    pub(crate) fn commit(&self, sequence: u32) -> anyhow::Result<()> {
        self.alone(|seen| {
            self.log.sync_data()?;
            let length = self.log.metadata()?.len();
            let state = State {
                length,
                sequence,
                ..seen
            };
            state.write(&self.state)?;
            Ok(self.state.sync_data()?)
        })
    }

    /// Whether somebody has begun to append and has not committed it.
    pub(crate) fn has_unfinished(directory: &Path, name: &str) -> anyhow::Result<bool> {
        let path = |kind| directory.join(format!("{name}.{kind}"));
        if !path("log").try_exists()? || !path("state").try_exists()? {
            return Ok(false);
        }
        let state = File::open(path("state"))?;
        state.lock_shared().context("cannot lock the file")?;
        Ok(path("log").metadata()?.len() > State::read(&state)?.length)
    }

    /// Does something while nobody else touches the files, unless this writer has come too late.
    fn alone<T>(&self, work: impl FnOnce(State) -> anyhow::Result<T>) -> anyhow::Result<T> {
        // A process that ends in here gives this lock back by ending.
        self.state.lock().context("cannot lock the file")?;
        let done = self.admitted().and_then(work);
        self.state.unlock().context("cannot unlock the file")?;
        done
    }

    fn admitted(&self) -> anyhow::Result<State> {
        let state = State::read(&self.state)?;
        let (token, seen) = (self.token, state.token);
        anyhow::ensure!(token >= seen, Stale { token, seen });
        Ok(state)
    }
}

impl State {
    /// An empty file is that of a log in which nothing was ever written.
    fn read(mut file: &File) -> anyhow::Result<Self> {
        let mut line = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut line)?;
        if line.is_empty() {
            return Ok(Self::default());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [token, length, sequence] = words[..] else {
            anyhow::bail!("the state of the file is damaged: {line:?}");
        };
        Ok(Self {
            token: token.parse()?,
            length: length.parse()?,
            sequence: sequence.parse()?,
        })
    }

    /// All in one write of always the same length: a process that is killed has done it or has not.
    fn write(&self, mut file: &File) -> anyhow::Result<()> {
        let Self {
            token,
            length,
            sequence,
        } = self;
        file.seek(SeekFrom::Start(0))?;
        Ok(file.write_all(format!("{token:020} {length:020} {sequence:010}\n").as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn open(directory: &TempDir, token: i64) -> FencedFile {
        FencedFile::open(directory.path(), "orders", token).unwrap()
    }

    fn contents(directory: &TempDir) -> String {
        std::fs::read_to_string(directory.path().join("orders.log")).unwrap()
    }

    fn refused<T: fmt::Debug>(outcome: anyhow::Result<T>) -> Stale {
        outcome.unwrap_err().downcast().unwrap()
    }

    /// S4.8: half a record of a killed writer disappears, a committed one stays.
    #[test]
    fn what_was_not_committed_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let killed = open(&directory, 5);
        assert_eq!(killed.committed(), 0);
        killed.append(b"whole ").unwrap();
        killed.commit(1).unwrap();
        killed.append(b"to").unwrap();
        assert!(FencedFile::has_unfinished(directory.path(), "orders").unwrap());
        drop(killed);

        let next = open(&directory, 6);
        assert_eq!((next.committed(), contents(&directory).as_str()), (1, "whole "));
        assert!(!FencedFile::has_unfinished(directory.path(), "orders").unwrap());
        next.append(b"again").unwrap();
        next.commit(2).unwrap();
        assert_eq!(open(&directory, 7).committed(), 2);
        assert_eq!(contents(&directory), "whole again");
    }

    /// S4.8, S1.20: a writer that was paused goes on too late.
    #[test]
    fn a_late_writer_is_refused_whatever_it_does() {
        let directory = tempfile::tempdir().unwrap();
        let paused = open(&directory, 5);
        paused.append(b"old").unwrap();
        let next = open(&directory, 6);
        let stale = || Stale { token: 5, seen: 6 };

        assert_eq!(refused(paused.append(b"late")), stale());
        assert_eq!(refused(paused.commit(1)), stale());
        assert_eq!(refused(FencedFile::open(directory.path(), "orders", 5)), stale());
        next.append(b"new").unwrap();
        next.commit(1).unwrap();
        assert_eq!(refused(paused.append(b"late")), stale());
        assert_eq!(contents(&directory), "new");
    }

    #[test]
    fn the_state_survives_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = open(&directory, 0);
        for state in [
            State::default(),
            State {
                token: i64::MAX,
                length: u64::MAX,
                sequence: u32::MAX,
            },
        ] {
            state.write(&file.state).unwrap();
            assert_eq!(State::read(&file.state).unwrap(), state);
        }
    }

    #[test]
    fn a_damaged_state_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("orders.state"), "5 6").unwrap();
        let error = FencedFile::open(directory.path(), "orders", 7).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

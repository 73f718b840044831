//! A directory of files. A second file stores the greatest token that has written the first one.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use mongolock::{Fenced, FencingToken, LockError};

use crate::stale_and_next;

struct FileStore(PathBuf);

impl FileStore {
    fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Writes a whole file; `LockError::Stale` if a later holder has written it. Comparing and writing is one step for all
    /// users of the directory: the operating system's lock on the fence file lasts until that file is closed.
    fn write(&self, name: &str, token: FencingToken, content: &str) -> anyhow::Result<()> {
        let path = self.0.join(name);
        let options = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .clone();
        let mut fence = options.open(path.with_extension("fence"))?;
        fence.lock()?;
        let seen = read_token(&mut fence)?;
        Fenced::restored((), seen).write(token, |()| {
            // The token first: if this process dies before the rename, the old file stays, and no earlier holder can write
            // it any more.
            write_token(&mut fence, token)?;
            let new = path.with_extension("new");
            let mut file = File::create(&new)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            Ok(fs::rename(new, path)?)
        })?
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

/// A damaged token is an error: it must not open the fence.
fn read_token(fence: &mut File) -> anyhow::Result<FencingToken> {
    let mut text = String::new();
    fence.read_to_string(&mut text)?;
    match text.trim() {
        "" => Ok(FencingToken::from(0)),
        token => token.parse().context("the fence file is damaged"),
    }
}

/// Always of one length: a shorter text would leave digits of the token before.
fn write_token(fence: &mut File, token: FencingToken) -> anyhow::Result<()> {
    fence.rewind()?;
    fence.write_all(format!("{token:>20}").as_bytes())?;
    Ok(fence.sync_data()?)
}

#[tokio::test]
async fn a_file_rejects_a_stale_holder() {
    let (stale, next) = stale_and_next().await;
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::new(directory.path());
    store.write("report", next, "the next").unwrap();
    let error = store.write("report", stale, "stale").unwrap_err();
    assert!(matches!(
        error.downcast_ref(),
        Some(LockError::Stale { token, seen, .. }) if (*token, *seen) == (stale, next)
    ));
    assert_eq!(store.read("report"), "the next");
    store.write("report", next, "the next again").unwrap();
    assert_eq!(store.read("report"), "the next again");

    fs::write(directory.path().join("report.fence"), "damaged").unwrap();
    assert!(store.write("report", next, "blind").is_err());
    assert_eq!(store.read("report"), "the next again");
}

/// Many writers at the same time; each opens the files itself, as a process would.
#[test]
fn the_greatest_token_wins_among_many() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::new(directory.path());
    thread::scope(|scope| {
        for writer in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for step in 0..25 {
                    let token = FencingToken::from(step * 8 + (writer * 3 + step) % 8);
                    let written = store.write("report", token, &token.to_string());
                    let is_stale =
                        |error: &anyhow::Error| matches!(error.downcast_ref(), Some(LockError::Stale { .. }));
                    assert!(written.as_ref().err().is_none_or(is_stale), "{written:?}");
                }
            });
        }
    });
    assert_eq!(store.read("report"), "199");
}

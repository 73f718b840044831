//! A directory of files, each with the greatest token that has written it beside it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;

use mongolock::{FencingToken, LockError};

use crate::late_and_next;

struct FileStore {
    directory: PathBuf,
}

impl FileStore {
    fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Writes a file as a whole, unless a later holder was here. Comparing and writing is one step for all who use the
    /// directory: the operating system's lock on the fence file lasts until it is closed.
    fn write(&self, name: &str, token: FencingToken, content: &str) -> io::Result<Result<(), LockError>> {
        let path = self.directory.join(name);
        let mut fence = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.with_extension("fence"))?;
        fence.lock()?;
        if let Some(seen) = read_token(&mut fence)?.filter(|seen| *seen > token) {
            return Ok(Err(LockError::stale(token, seen)));
        }
        // Before the content: whoever dies in between leaves the old file, and no earlier holder can write it.
        write_token(&mut fence, token)?;
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, path)?;
        Ok(Ok(()))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap()
    }
}

/// What is there and is no token is an error: it must not open the fence.
fn read_token(fence: &mut File) -> io::Result<Option<FencingToken>> {
    let mut text = String::new();
    fence.read_to_string(&mut text)?;
    match text.trim() {
        "" => Ok(None),
        token => token.parse().map(Some).map_err(io::Error::other),
    }
}

/// Always of one length: a shorter one would leave digits of the one before.
fn write_token(fence: &mut File, token: FencingToken) -> io::Result<()> {
    fence.rewind()?;
    fence.write_all(format!("{token:>20}").as_bytes())?;
    fence.sync_data()
}

#[tokio::test]
async fn a_file_refuses_a_late_holder() {
    let (late, next) = late_and_next().await;
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::new(directory.path());
    store.write("report", next, "the next").unwrap().unwrap();
    let refused = store.write("report", late, "too late").unwrap();
    assert!(matches!(refused, Err(LockError::Stale { token, seen, .. }) if token == late && seen == next));
    assert_eq!(store.read("report"), "the next");
    store.write("report", next, "the next again").unwrap().unwrap();
    assert_eq!(store.read("report"), "the next again");

    fs::write(directory.path().join("report.fence"), "damaged").unwrap();
    assert!(store.write("report", next, "blind").is_err());
    assert_eq!(store.read("report"), "the next again");
}

/// Writers at the same time, each through files that it opened itself, as processes would.
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
                    let written = store.write("report", token, &token.to_string()).unwrap();
                    assert!(matches!(written, Ok(()) | Err(LockError::Stale { .. })));
                }
            });
        }
    });
    assert_eq!(store.read("report"), "199");
}

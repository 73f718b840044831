//! What the commands of `run` record themselves: who was alive when.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mongolock_tests::{must, until};
use tempfile::TempDir;

/// The part of a script that records every 20 ms that its process is alive, for `$1` times or for ever. A record is the
/// token of the hold and the time since the boot.
const RECORDING: &str = r#"
record() { read up rest </proc/uptime; echo "$MONGOLOCK_TOKEN $up" >>"$FILE"; }
recording() { n=0; while [ "$n" != "$1" ]; do record; sleep 0.02; n=$((n + 1)); done; }
"#;

/// A file that commands append their records to.
pub(crate) struct Records {
    directory: TempDir,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self {
            directory: must(tempfile::tempdir()),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("records")
    }

    /// Another file in the same directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A shell script that can call `record` and `recording <times>`.
    pub(crate) fn script(&self, body: &str) -> String {
        format!("FILE='{}'\n{RECORDING}\n{body}", self.path().display())
    }

    /// Waits until a command has recorded something, beside this number of others.
    pub(crate) async fn until_begun(&self, others: usize) {
        until("a record", async || self.all().len() > others).await;
    }

    /// The first and the last time in hundredths of a second, by token.
    fn all(&self) -> BTreeMap<String, (u64, u64)> {
        let mut all = BTreeMap::new();
        for line in read(&self.path()).lines() {
            // The last line may be cut when its writer is killed.
            let Some((token, at)) = line.split_once(' ') else {
                continue;
            };
            let Ok(at) = at.replace('.', "").parse::<u64>() else {
                continue;
            };
            let (first, last) = all.entry(token.to_owned()).or_insert((at, at));
            (*first, *last) = ((*first).min(at), (*last).max(at));
        }
        all
    }

    /// Asserts that so many commands have run, and no two at once.
    #[track_caller]
    pub(crate) fn assert_one_at_a_time(&self, commands: usize) {
        let mut times: Vec<(u64, u64)> = self.all().into_values().collect();
        times.sort_unstable();
        assert_eq!(times.len(), commands, "{times:?}");
        for pair in times.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "two at once: {times:?}");
        }
    }
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

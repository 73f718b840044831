//! The signals that `run` passes on.

use std::fs;
use std::path::PathBuf;

use mongolock_tests::{must, test_db, until};
use rustix::process::Signal;

use crate::fixture::{Running, mongolock};
use crate::records::Records;

/// A script that notes each signal, and ends 1 s after the first one.
const NOTING: &str = r#"
for signal in HUP INT QUIT TERM USR1 USR2; do trap "echo $signal >>'$0'; n=1" $signal; done
n=
record
while [ -z "$n" ]; do sleep 0.05; done
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done
exit 9
"#;

#[tokio::test]
async fn each_signal_is_passed_on_once() {
    tokio::join!(
        passed_on_once(Signal::HUP, "HUP\n"),
        passed_on_once(Signal::INT, "INT\n"),
        passed_on_once(Signal::QUIT, "QUIT\n"),
        passed_on_once(Signal::TERM, "TERM\n"),
        passed_on_once(Signal::USR1, "USR1\n"),
        passed_on_once(Signal::USR2, "USR2\n"),
    );
}

async fn passed_on_once(signal: Signal, name: &str) {
    let (db, records) = (test_db().await, Records::new());
    let noted = records.file("noted");
    let script = records.script(NOTING);
    let noted_path = noted.to_string_lossy().into_owned();
    let arguments = ["run", "a", "--", "sh", "-c", &script, &noted_path];
    let mut running = Running::start(mongolock(&db, &arguments));
    records.until_begun(0).await;
    // As `timeout` does: one for the process, and one for its group.
    running.signal(signal);
    running.signal(signal);
    assert_eq!(running.code().await, Some(9));
    assert_eq!(must(fs::read_to_string(&noted)), name);
}

/// A stopped process gets signals when it continues.
#[tokio::test]
async fn a_stopped_command_ends_by_a_signal() {
    let db = test_db().await;
    for signal in [Signal::TERM, Signal::HUP] {
        let records = Records::new();
        let script = records.script("record; kill -STOP $$; sleep 100");
        let mut run = mongolock(&db, &["run", "a", "--", "sh", "-c", &script]);
        let said = records.file("said");
        run.stderr(must(fs::File::create(&said)));
        let mut running = Running::start(run);
        until("the news of the stop", async || {
            let said = must(fs::read_to_string(&said));
            said.contains("the command was stopped, and keeps the lock")
        })
        .await;
        running.signal(signal);
        assert_eq!(running.code().await, Some(128 + signal.as_raw()));
        assert_eq!(must(fs::read_to_string(&said)).lines().count(), 1);
    }
}

/// The reader of the output waits for the command only.
#[tokio::test]
async fn nothing_of_run_is_left_after_the_command() {
    let db = test_db().await;
    let mut running = Running::start(mongolock(&db, &["run", "a", "--", "sleep", "0.3"]));
    let guardian = running.guardian().await;
    assert_eq!(running.code().await, Some(0));
    let directory = PathBuf::from(format!("/proc/{guardian}"));
    until("the end of the guardian", async || !directory.exists()).await;
}

//! The program `queue_workers`, run as a user runs it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mongolock_tests::{eventually, must, shared};
use serde_json::Value;

use crate::run::{PASSED, Text, error_of, fails, passes, program, signal, words, worker};

fn queue_workers(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_queue_workers"), arguments)
}

/// The lines of batches, as words: process, type, messages, token, waited, held.
fn batches(text: &Text) -> impl Iterator<Item = Vec<&str>> {
    text.table().filter(|words| words[2].contains('-'))
}

/// S4.1, S4.8, S4.9: one process at a time for a type, several processes in turn, different types in parallel, and
/// complete files.
#[tokio::test]
async fn every_message_is_in_its_file_once_and_complete() {
    let directory = must(tempfile::tempdir());
    let files = directory.path().join("files");
    let place = files.to_string_lossy();
    let text = passes(queue_workers(&[
        "--types=2",
        "--messages=21",
        "--directory",
        &place,
    ]))
    .await;
    for data_type in ["orders", "invoices"] {
        let own: Vec<_> = batches(&text).filter(|words| words[1] == data_type).collect();
        let messages: Vec<&str> = own.iter().map(|words| words[2]).collect();
        assert_eq!(messages, ["1-5", "6-10", "11-15", "16-20", "21-21"], "{text:?}");
        assert!(own.is_sorted_by(|one, next| one[3] < next[3]), "{text:?}");
        let processes = own.iter().filter(|words| words[0] != own[0][0]);
        assert!(processes.count() > 0, "{text:?}");

        let file = must(fs::read_to_string(files.join(format!("{data_type}.log"))));
        let sequences: Vec<u64> = file.lines().map(|line| number(line, "sequence")).collect();
        assert_eq!(sequences, (1..=21).collect::<Vec<_>>());
    }
}

/// S4.8: what the lock prevents. All processes start together, and each takes a second for one batch of a type.
#[tokio::test]
async fn without_the_lock_records_are_torn() {
    let arguments = ["--messages", "20", "--pause", "50ms", "--without-lock"];
    let text = fails(queue_workers(&arguments)).await;
    let verdict = text.last_line();
    for data_type in ["orders", "invoices", "payments"] {
        let (_, problems) = verdict.split_once(&format!("{data_type} (")).expect(verdict);
        let problems = problems.split_once(')').expect(verdict).0;
        for problem in ["damaged ", "overlaps ", "no tokens"] {
            assert!(problems.contains(problem), "{data_type}: {verdict}");
        }
    }
}

/// S4.8, S4.9: the others wait for the leases of the killed process, remove its incomplete records, and continue.
#[tokio::test]
async fn a_process_killed_in_the_middle_of_its_records_costs_nothing() {
    let text = passes(queue_workers(&["--kill", "--messages", "20", "--expiry", "2s"])).await;
    text.has_lines(&["3 is killed in the middle of a record of each type"]);
    for data_type in ["orders", "invoices", "payments"] {
        text.has_lines(&[&format!(
            "{data_type} 20 messages once and in order, by 2 processes"
        )]);
    }
    assert_eq!(batches(&text).count(), 12, "{text:?}");
    assert!(batches(&text).all(|words| words[0] != "3"), "{text:?}");
}

/// S4.9, B4: a process is stopped in the middle of a batch, and continues after another one has got its lock.
#[tokio::test]
async fn a_stopped_process_with_a_stale_token_damages_nothing() {
    let directory = must(tempfile::tempdir());
    let uri = must(shared().await).uri();
    let mut program = queue_workers(&["--processes=2", "--types=2", "--messages=20", "--pause=50ms"]);
    program
        .arg("--expiry=1s")
        .arg("--directory")
        .arg(directory.path())
        .env("MONGODB_URI", uri)
        .stdout(Stdio::piped());
    let mut program = must(program.spawn());
    let output = program.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines().map(|line| words(&must(line)));
    let mut batch_of_orders = |process: &str| {
        let is_it = |line: &String| line.starts_with(process) && line.contains(" orders ");
        lines.find(is_it).expect("there is one")
    };

    let first = batch_of_orders("").split(' ').next().map(str::to_owned);
    let first = first.expect("the line begins with the process");
    // The other process has its turn now: the first one waits for as long as it has held the lock.
    let other = if first == "1" { "2" } else { "1" };
    let pid = worker("queue_workers", program.id(), other).expect("it runs");
    let stopped = || async { stop_in_a_batch(directory.path(), "orders", pid) };
    must(eventually(Duration::from_secs(20), "stop in the middle of a batch", stopped).await);
    batch_of_orders(&first);
    signal("CONT", pid);

    let rest: Vec<String> = lines.collect();
    assert_eq!(must(program.wait()).code(), Some(0), "{rest:?}");
    let given_up = format!("{other} orders gives up its batch: ");
    assert!(rest.iter().any(|line| line.starts_with(&given_up)), "{rest:?}");
    assert_eq!(rest.last().map(String::as_str), Some(PASSED));
}

/// Stops the process that is in the middle of a batch, but not during a write: no other process could open the file
/// then.
fn stop_in_a_batch(directory: &Path, data_type: &str, pid: u32) -> Option<()> {
    has_uncommitted(directory, data_type).then_some(())?;
    signal("STOP", pid);
    let state = must(File::open(directory.join(format!("{data_type}.state"))));
    if state.try_lock_shared().is_ok() && has_uncommitted(directory, data_type) {
        return Some(());
    }
    signal("CONT", pid);
    None
}

fn has_uncommitted(directory: &Path, data_type: &str) -> bool {
    let log = directory.join(format!("{data_type}.log"));
    let state = must(fs::read_to_string(log.with_extension("state")));
    must(log.metadata()).len() > number(&state, "length")
}

/// A number in an object of JSON.
fn number(json: &str, field: &str) -> u64 {
    let value: Value = must(serde_json::from_str(json));
    value[field].as_u64().expect(field)
}

#[test]
fn the_files_of_an_earlier_run_are_kept() {
    let directory = must(tempfile::tempdir());
    let file = directory.path().join("orders.log");
    must(fs::write(&file, "earlier"));
    let place = directory.path().to_string_lossy();
    let message = error_of(&mut queue_workers(&["--directory", &place]));
    assert!(
        message.contains("is not empty: name an empty or a new one"),
        "{message}"
    );
    assert_eq!(must(fs::read_to_string(file)), "earlier");
}

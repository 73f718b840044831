//! The single-file examples of the library (`mongolock/examples`), run as their readers run them.

mod service;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use mongolock_tests::{TestDb, must, test_db};
use rustix::process::{Pid, Signal, kill_process};

use crate::executables::executable;

/// The example with its locks in memory.
fn in_memory(name: &str) -> Command {
    let mut command = Command::new(executable(name));
    command.env_remove("MONGODB_URI").stdin(Stdio::null());
    command
}

/// The example in the database of this test.
fn on_server(name: &str, db: &TestDb) -> Command {
    let mut command = in_memory(name);
    command.env("MONGODB_URI", uri(db));
    command
}

/// The database of this test.
fn uri(db: &TestDb) -> String {
    let (hosts, options) = db.uri().split_once('?').unwrap_or((db.uri(), ""));
    format!("{}/{}?{options}", hosts.trim_end_matches('/'), db.name())
}

/// Runs the example to its end and returns what it prints.
fn printed(mut example: Command) -> String {
    let output = must(example.output());
    assert!(output.status.success(), "{output:?}");
    text(&output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// In memory, and in the database of the test.
fn both(name: &str, db: &TestDb) -> [String; 2] {
    [in_memory(name), on_server(name, db)].map(printed)
}

#[tokio::test]
async fn quickstart_runs_the_calls_for_one_report_one_after_the_other() {
    let db = test_db().await;
    for output in both("quickstart", &db) {
        let calls = output.lines().filter(|line| line.contains("report 42"));
        let steps: Vec<_> = calls.filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(steps, ["begins", "ends", "begins", "ends"], "{output}");
        assert!(output.ends_with("all reports are rebuilt\n"), "{output}");
    }
}

/// An example, where it runs, which line it prints how often, and its last line.
const SHOWN: &str = "
lock_set     | both   | 5 30 from account 0 & 5 10 from account 1 | account 0 has 0, account 1 has 200
unit_tests   | memory |                                           | invoice 7 is sent
fenced_write | server | 1 refused                                 | the title is \"by holder 2\"";

#[tokio::test]
async fn the_examples_print_what_they_show() {
    let db = test_db().await;
    for row in SHOWN.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let in_memory = (cells[1] != "server").then(|| in_memory(cells[0]));
        let on_server = (cells[1] != "memory").then(|| on_server(cells[0], &db));
        for output in in_memory.into_iter().chain(on_server).map(printed) {
            for (times, text) in cells[2].split(" & ").filter_map(|count| count.split_once(' ')) {
                assert_eq!(output.matches(text).count().to_string(), times, "{row}: {output}");
            }
            assert!(output.trim_end().ends_with(cells[3]), "{row}: {output}");
        }
    }
}

#[tokio::test]
async fn permits_lets_two_exports_run_at_the_same_time() {
    let db = test_db().await;
    for output in both("permits", &db) {
        let begun = output.lines().filter(|line| line.contains(" begins, "));
        let running: String = begun.filter_map(|line| line.split(' ').nth(5)).collect();
        let are_two = running.len() == 6 && running.trim_matches(['1', '2']).is_empty();
        assert!(are_two, "{output}");
        assert!(output.ends_with("2 permits are free\n"), "{output}");
    }
}

#[tokio::test]
async fn cron_writes_the_report_of_each_tick_once() {
    let db = test_db().await;
    for example in [in_memory("cron"), on_server("cron", &db)] {
        let output = interrupted(example, "finds the report", Signal::INT);
        let tick = |line: &String| line.rsplit(' ').next().map(str::to_owned);
        let of = |what: &str| -> Vec<_> {
            let lines = output.iter().filter(|line| line.contains(what));
            lines.filter_map(tick).collect()
        };
        let (written, found) = (of("writes the report"), of("finds the report"));
        let once: HashSet<_> = written.iter().collect();
        assert_eq!(once.len(), written.len(), "{output:#?}");
        assert!(found.iter().all(|tick| once.contains(tick)), "{output:#?}");
        // A job that has found the report may say so after the end of its scheduler.
        let last = output.iter().rfind(|line| !line.contains("finds the report"));
        assert_eq!(last.unwrap(), "all instances have ended", "{output:#?}");
    }
}

#[tokio::test]
async fn blocking_imports_one_file_at_a_time() {
    let db = test_db().await;
    for output in both("blocking", &db) {
        let steps: Vec<_> = output.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(steps[..6], ["begins", "ends"].repeat(3), "{output}");
        let end = "900 rows are imported, the lock is free: true\n";
        assert!(output.ends_with(end), "{output}");
    }
}

#[test]
fn fenced_write_says_that_it_needs_a_server() {
    let output = must(in_memory("fenced_write").output());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("set MONGODB_URI"), "{message}");
}

#[tokio::test]
async fn skip_if_busy_imports_one_at_a_time_and_ends_the_import_in_progress() {
    let db = test_db().await;
    for example in [in_memory("skip_if_busy"), on_server("skip_if_busy", &db)] {
        let output = interrupted(example, "skips the import", Signal::INT);
        let steps = output.iter().filter_map(|line| line.split(' ').nth(2));
        let steps: Vec<_> = steps.filter(|step| ["begins", "ends"].contains(step)).collect();
        assert!(!steps.is_empty(), "{output:#?}");
        let one_at_a_time = steps.chunks(2).all(|pair| pair == ["begins", "ends"]);
        assert!(one_at_a_time, "{output:#?}");
        assert_eq!(output.last().unwrap(), "all instances have ended", "{output:#?}");
    }
}

#[test]
fn leader_steps_down_on_ctrl_c() {
    let output = interrupted(in_memory("leader"), "follower: ", Signal::INT);
    let is_there = |text: &str| output.iter().any(|line| line.contains(text));
    for text in ["leads, with token", "follower: ", "stepping down"] {
        assert!(is_there(text), "{text}: {output:#?}");
    }
}

/// Sends the signal once a line of the output contains this text, and returns the lines of a program that then ends well.
fn interrupted(mut example: Command, at: &str, signal: Signal) -> Vec<String> {
    let mut running = KilledOnDrop(must(example.stdout(Stdio::piped()).spawn()));
    let stdout = running.0.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let mut output: Vec<String> = Vec::new();
    while !output.last().is_some_and(|line| line.contains(at)) {
        let next = lines.next();
        output.push(next.unwrap_or_else(|| panic!("it ended early: {output:#?}")));
    }
    must(kill_process(Pid::from_child(&running.0), signal));
    output.extend(lines);
    let status = must(running.0.wait());
    assert!(status.success(), "{status}: {output:#?}");
    output
}

/// A failed test leaves no process behind.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

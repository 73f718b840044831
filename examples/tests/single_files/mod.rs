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
    let (hosts, options) = db.uri().split_once('?').unwrap_or((db.uri(), ""));
    let uri = format!("{}/{}?{options}", hosts.trim_end_matches('/'), db.name());
    let mut command = in_memory(name);
    command.env("MONGODB_URI", uri);
    command
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

/// An example, where it runs, how often it prints which text, and its last line. The second `scheduled_job` runs in the
/// database of the first one.
const SHOWN: &str = "
lock_set       | both   | 10 under account:1 and account:2                      | account 1 has 0, account 2 has 200
scheduled_job  | both   | 1 has written 1000 rows & 2 skips the job             |
scheduled_job  | server | 3 skips the job                                       |
unit_tests     | memory |                                                       | invoice 7 is sent
fenced_write   | server | 1 is refused                                          | the title is \"by holder 2\"
guarded_commit | server | 1 is not committed & 2 account 1 has 70, account 2 has 130 |
exactly_once   | server | 1 has paid into 2 accounts & 2 finds the interest paid | 2 accounts have 101";

#[tokio::test]
async fn the_examples_print_what_they_show() {
    let db = test_db().await;
    for row in SHOWN.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let in_memory = (cells[1] != "server").then(|| in_memory(cells[0]));
        let on_server = (cells[1] != "memory").then(|| on_server(cells[0], &db));
        for output in in_memory.into_iter().chain(on_server).map(printed) {
            // In one line, because the example has a line for each account.
            let line = output.lines().map(str::trim).collect::<Vec<_>>().join(", ");
            for (times, text) in cells[2].split(" & ").filter_map(|count| count.split_once(' ')) {
                assert_eq!(line.matches(text).count().to_string(), times, "{row}: {output}");
            }
            assert!(line.ends_with(cells[3]), "{row}: {output}");
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
async fn operator_list_shows_the_locks_of_all_processes() {
    let output = printed(in_memory("operator_list"));
    let parts = ["invoice:7", "report:42", "locks held: 2\n"];
    assert!(parts.iter().all(|part| output.contains(part)), "{output}");

    let db = test_db().await;
    let builder = mongolock::LockProvider::builder(db.database()).owner("billing-7");
    let billing = must(builder.build());
    let _report = must(billing.lock("report:1").await);
    let _other = must(billing.lock("other:1").await);
    let mut list = on_server("operator_list", &db);
    list.arg("report:");
    let output = printed(list);
    let parts = ["report:1", "billing-7", "locks held: 1\n"];
    assert!(parts.iter().all(|part| output.contains(part)), "{output}");
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
fn examples_that_need_a_server_say_so() {
    for name in ["fenced_write", "guarded_commit", "exactly_once"] {
        let output = must(in_memory(name).output());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("set MONGODB_URI"), "{message}");
    }
}

#[test]
fn worker_finishes_its_job_on_sigterm() {
    let output = interrupted(in_memory("worker"), "order 1 begins", Signal::TERM);
    let orders = output.iter().filter(|line| line.starts_with("order"));
    let (begun, done): (Vec<_>, Vec<_>) = orders.partition(|line| line.ends_with("begins"));
    assert_eq!(begun.len(), done.len(), "{output:#?}");
    assert_eq!(output.last().map(String::as_str), Some("all locks are released"));
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

//! The single-file examples of the library (`mongolock/examples`), run as their readers run them.

mod service;

use std::collections::{HashMap, HashSet};
use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use mongolock_tests::{TestDb, must, test_db};

/// The executables by their names.
static EXECUTABLES: LazyLock<HashMap<String, PathBuf>> = LazyLock::new(|| {
    let output = must(build().output());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let messages = text(&output);
    let executables = messages.lines().filter_map(|message| {
        let (_, rest) = message.split_once("\"executable\":\"")?;
        let path = PathBuf::from(rest.split('"').next()?);
        Some((path.file_name()?.to_string_lossy().into_owned(), path))
    });
    executables.collect()
});

/// Builds the examples: a run of a single suite builds none, and `cargo test` builds one that has tests only as a test.
/// With the packages and the environment of a full run, everything else is already built then.
fn build() -> Command {
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args([
        "build",
        "--workspace",
        "--examples",
        "--features=mongolock/metrics",
        "--locked",
        "--message-format=json",
    ]);
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    // Cargo describes the package of a test to the test. A build script of a dependency would take that for a change.
    let is_description = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_description) {
            build.env_remove(name);
        }
    }
    build
}

/// The example with its locks in memory.
fn in_memory(name: &str) -> Command {
    let mut command = Command::new(&EXECUTABLES[name]);
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

#[tokio::test]
async fn lock_set_moves_money_in_both_directions() {
    let db = test_db().await;
    for output in both("lock_set", &db) {
        assert_eq!(
            output.matches("under account:1 and account:2").count(),
            10,
            "{output}"
        );
        assert!(
            output.ends_with("account 1 has 0, account 2 has 200\n"),
            "{output}"
        );
    }
}

#[tokio::test]
async fn scheduled_job_runs_on_one_of_three_instances() {
    let db = test_db().await;
    for output in both("scheduled_job", &db) {
        assert_eq!(output.matches("has written 1000 rows").count(), 1, "{output}");
        assert_eq!(output.matches("skips the job").count(), 2, "{output}");
    }
    let again = printed(on_server("scheduled_job", &db));
    assert_eq!(again.matches("skips the job").count(), 3, "{again}");
}

#[tokio::test]
async fn permits_lets_two_exports_run_at_the_same_time() {
    let db = test_db().await;
    for output in both("permits", &db) {
        let begun = output.lines().filter(|line| line.contains(" begins, "));
        let running: Vec<&str> = begun.filter_map(|line| line.split(' ').nth(5)).collect();
        assert_eq!(running.len(), 6, "{output}");
        assert!(
            running.iter().all(|running| ["1", "2"].contains(running)),
            "{output}"
        );
        assert!(output.ends_with("2 permits are free\n"), "{output}");
    }
}

#[tokio::test]
async fn cron_writes_the_report_of_each_tick_once() {
    let db = test_db().await;
    for example in [in_memory("cron"), on_server("cron", &db)] {
        let output = interrupted(example, "finds the report", rustix::process::Signal::INT);
        let tick = |line: &String| line.rsplit(' ').next().map(str::to_owned);
        let of = |what: &str| -> Vec<_> {
            let lines = output.iter().filter(|line| line.contains(what));
            lines.filter_map(tick).collect()
        };
        let (written, found) = (of("writes the report"), of("finds the report"));
        let once: HashSet<_> = written.iter().collect();
        assert_eq!(once.len(), written.len(), "{output:#?}");
        assert!(found.iter().all(|tick| once.contains(tick)), "{output:#?}");
        assert_eq!(
            output.last().map(String::as_str),
            Some("all instances have ended"),
            "{output:#?}"
        );
    }
}

#[tokio::test]
async fn operator_list_shows_the_locks_of_all_processes() {
    let output = printed(in_memory("operator_list"));
    assert!(
        output.contains("invoice:7") && output.contains("report:42"),
        "{output}"
    );
    assert!(output.ends_with("locks held: 2\n"), "{output}");

    let db = test_db().await;
    let builder = mongolock::LockProvider::builder(db.database()).owner("billing-7");
    let billing = must(builder.build());
    let _report = must(billing.lock("report:1").await);
    let _other = must(billing.lock("other:1").await);
    let mut list = on_server("operator_list", &db);
    list.arg("report:");
    let output = printed(list);
    assert!(
        output.contains("report:1") && output.contains("billing-7"),
        "{output}"
    );
    assert!(output.ends_with("locks held: 1\n"), "{output}");
}

#[test]
fn unit_tests_is_a_program_as_well() {
    assert_eq!(printed(in_memory("unit_tests")), "invoice 7 is sent\n");
}

#[tokio::test]
async fn fenced_write_refuses_the_stale_holder() {
    let db = test_db().await;
    let output = printed(on_server("fenced_write", &db));
    assert!(output.contains("is refused"), "{output}");
    assert!(output.ends_with("the title is \"by holder 2\"\n"), "{output}");
}

#[tokio::test]
async fn guarded_commit_commits_only_under_the_lock() {
    let db = test_db().await;
    let output = printed(on_server("guarded_commit", &db));
    assert!(output.contains("is not committed"), "{output}");
    let balances = "  account 1 has 70\n  account 2 has 130\n";
    assert_eq!(output.matches(balances).count(), 2, "{output}");
}

#[tokio::test]
async fn exactly_once_pays_the_interest_of_a_tick_once() {
    let db = test_db().await;
    let output = printed(on_server("exactly_once", &db));
    assert_eq!(output.matches("has paid into 2 accounts").count(), 1, "{output}");
    assert_eq!(output.matches("finds the interest paid").count(), 2, "{output}");
    assert!(output.ends_with("2 accounts have 101\n"), "{output}");
}

#[tokio::test]
async fn blocking_imports_one_file_at_a_time() {
    let db = test_db().await;
    for output in both("blocking", &db) {
        let steps: Vec<_> = output.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(
            steps[..6],
            ["begins", "ends", "begins", "ends", "begins", "ends"],
            "{output}"
        );
        assert!(
            output.ends_with("900 rows are imported, the lock is free: true\n"),
            "{output}"
        );
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
    let output = interrupted(
        in_memory("worker"),
        "order 1 begins",
        rustix::process::Signal::TERM,
    );
    let orders = output.iter().filter(|line| line.starts_with("order"));
    let (begun, done): (Vec<_>, Vec<_>) = orders.partition(|line| line.ends_with("begins"));
    assert_eq!(begun.len(), done.len(), "{output:#?}");
    assert_eq!(output.last().map(String::as_str), Some("all locks are released"));
}

#[test]
fn leader_steps_down_on_ctrl_c() {
    let output = interrupted(in_memory("leader"), "follower: ", rustix::process::Signal::INT);
    let is_there = |text: &str| output.iter().any(|line| line.contains(text));
    for text in ["is the leader", "follower: ", "leads", "stepping down"] {
        assert!(is_there(text), "{text}: {output:#?}");
    }
}

/// Sends the signal once a line of the output contains this text, and returns the lines of a program that then ends well.
fn interrupted(mut example: Command, at: &str, signal: rustix::process::Signal) -> Vec<String> {
    let mut running = KilledOnDrop(must(example.stdout(Stdio::piped()).spawn()));
    let stdout = running.0.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let mut output: Vec<String> = Vec::new();
    while !output.last().is_some_and(|line| line.contains(at)) {
        output.extend([lines
            .next()
            .unwrap_or_else(|| panic!("it ended early: {output:#?}"))]);
    }
    must(rustix::process::kill_process(
        rustix::process::Pid::from_child(&running.0),
        signal,
    ));
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

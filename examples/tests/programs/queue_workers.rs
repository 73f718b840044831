//! The program `queue_workers`, run as a user runs it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use mongolock_tests::{eventually, must, shared};

use crate::old_run::{has_line, help_names, on_shared, processes, program, refuses, signal, text};

const COLUMNS: [&str; 8] = [
    "done",
    "missing",
    "repeated",
    "damaged",
    "disordered",
    "overlaps",
    "processes",
    "tokens",
];

fn queue_workers(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_queue_workers"), arguments)
}

async fn run_on_shared(arguments: &[&str]) -> Output {
    on_shared(queue_workers(arguments)).await
}

/// The lines of batches, as words: process, type, messages, token, waited, held.
fn batches(text: &str) -> Vec<Vec<String>> {
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let is_batch = |words: &Vec<String>| words.get(2).is_some_and(|messages| messages.contains('-'));
    text.lines().map(words).filter(is_batch).collect()
}

/// What the summary says of a type in a column.
fn found(output: &Output, data_type: &str, column: &str) -> String {
    let text = text(output);
    let summary = text.lines().skip_while(|line| !line.starts_with("type ")).skip(1);
    let line = summary.into_iter().find(|line| line.starts_with(data_type));
    let line = line
        .unwrap_or_else(|| panic!("{data_type}: {text}"))
        .replace(" of ", "/");
    let index = COLUMNS.iter().position(|name| *name == column).expect("a column");
    line.split_whitespace()
        .nth(index + 1)
        .expect("it has all columns")
        .to_owned()
}

fn assert_whole(output: &Output, data_type: &str, messages: u32) {
    let done = format!("{messages}/{messages}");
    for (column, wanted) in COLUMNS.into_iter().zip([&done, "0", "0", "0", "0", "0"]) {
        assert_eq!(
            found(output, data_type, column),
            wanted,
            "{column}: {}",
            text(output)
        );
    }
    assert_eq!(found(output, data_type, "tokens"), "rose", "{}", text(output));
}

/// S4.1, S4.8, S4.9: the same type by one process at a time and by several in turn, different types side by side, and
/// whole files.
#[tokio::test]
async fn every_message_is_in_its_file_once_and_whole() {
    let directory = must(tempfile::tempdir());
    let files = directory.path().join("files");
    let place = files.to_string_lossy();
    let output = run_on_shared(&["--types", "2", "--messages", "21", "--directory", &place]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(has_line(&output, "Everything is right."), "{}", text(&output));
    for data_type in ["orders", "invoices"] {
        assert_whole(&output, data_type, 21);
        let batches = batches(&text(&output));
        let own: Vec<_> = batches.iter().filter(|words| words[1] == data_type).collect();
        let messages: Vec<&str> = own.iter().map(|words| words[2].as_str()).collect();
        assert_eq!(
            messages,
            ["1-5", "6-10", "11-15", "16-20", "21-21"],
            "{}",
            text(&output)
        );
        assert!(
            own.is_sorted_by(|one, next| one[3] < next[3]),
            "{}",
            text(&output)
        );
        assert!(own.iter().any(|words| words[0] != own[0][0]), "{}", text(&output));
        assert_eq!(ends(&files, data_type), (1..=21).collect::<Vec<_>>());
    }
}

/// The numbers of the end lines in a file.
fn ends(directory: &Path, data_type: &str) -> Vec<u32> {
    let file = must(std::fs::read_to_string(
        directory.join(format!("{data_type}.log")),
    ));
    let ends = file.lines().filter_map(|line| line.strip_prefix("end "));
    ends.map(|number| must(number.parse())).collect()
}

/// S4.8: what the lock prevents. All processes begin together, and each is busy with one batch of a type for a second.
#[tokio::test]
async fn without_the_lock_the_check_finds_torn_records() {
    let output = run_on_shared(&["--messages", "20", "--pause", "50ms", "--without-lock"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let wrong = "Something went wrong with orders, invoices, payments.";
    assert!(has_line(&output, wrong), "{}", text(&output));
    for data_type in ["orders", "invoices", "payments"] {
        for (column, right) in [("damaged", "0"), ("overlaps", "0"), ("tokens", "rose")] {
            assert_ne!(
                found(&output, data_type, column),
                right,
                "{column}: {}",
                text(&output)
            );
        }
    }
}

/// S4.8, S4.9: the others wait for the leases of the dead one, cut off its half records, and go on.
#[tokio::test]
async fn a_process_killed_in_the_middle_of_its_records_costs_nothing() {
    let output = run_on_shared(&["--kill", "--messages", "20", "--expiry", "2s"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let killed = "3 is killed in the middle of a record of each type";
    assert!(has_line(&output, killed), "{}", text(&output));
    for data_type in ["orders", "invoices", "payments"] {
        assert_whole(&output, data_type, 20);
    }
    let batches = batches(&text(&output));
    assert_eq!(batches.len(), 12, "{}", text(&output));
    assert!(batches.iter().all(|words| words[0] != "3"), "{}", text(&output));
}

/// S4.9, B4: a process that is stopped in the middle of a batch and goes on after another has taken over.
#[cfg(unix)]
#[tokio::test]
async fn a_stopped_process_that_goes_on_too_late_harms_nothing() {
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
    let mut lines = Lines::of(&mut program);

    let first = lines.until(|words| words[1] == "orders");
    // The other one has its turn now: this one leaves it as much time as it has taken itself.
    let other = if first[0] == "1" { "2" } else { "1" };
    let pid = worker(program.id(), other);
    let stopped = || async { stop_in_a_batch(directory.path(), "orders", pid) };
    must(eventually(Duration::from_secs(20), "stop in the middle of a batch", stopped).await);
    lines.until(|words| words[0] == first[0] && words[1] == "orders");
    signal("CONT", pid);

    let rest = lines.rest();
    assert_eq!(must(program.wait()).code(), Some(0), "{rest}");
    let lost = format!("{other} orders has lost its turn:");
    let columns = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        rest.lines().any(|line| columns(line).starts_with(&lost)),
        "{rest}"
    );
    assert!(rest.contains("Everything is right."), "{rest}");
}

/// Stops the process that is in the middle of a batch, but not in the microseconds of a write: nobody else could open
/// the file as long as it stands there.
#[cfg(unix)]
fn stop_in_a_batch(directory: &Path, data_type: &str, pid: u32) -> Option<()> {
    has_unfinished(directory, data_type).then_some(())?;
    signal("STOP", pid);
    let state = must(File::open(directory.join(format!("{data_type}.state"))));
    if state.try_lock_shared().is_ok() && has_unfinished(directory, data_type) {
        return Some(());
    }
    signal("CONT", pid);
    None
}

/// Whether there is more in a file than its last commit says.
#[cfg(unix)]
fn has_unfinished(directory: &Path, data_type: &str) -> bool {
    let length = must(directory.join(format!("{data_type}.log")).metadata()).len();
    let state = must(std::fs::read_to_string(
        directory.join(format!("{data_type}.state")),
    ));
    let committed: u64 = must(state.split(' ').nth(1).expect("the length").parse());
    length > committed
}

/// The id of a process that the program with this id has started.
#[cfg(unix)]
fn worker(program: u32, number: &str) -> u32 {
    let processes = processes("pid,args");
    let own = format!("--worker={number} --database=mongolock_queue_workers_{program}_");
    let line = processes
        .lines()
        .find(|line| line.contains(&own))
        .expect("it runs");
    must(line.split_whitespace().next().expect("its id").parse())
}

/// What a running program says.
#[cfg(unix)]
struct Lines(std::io::Lines<BufReader<ChildStdout>>);

#[cfg(unix)]
impl Lines {
    fn of(program: &mut Child) -> Self {
        Self(BufReader::new(program.stdout.take().expect("it is piped")).lines())
    }

    /// The next line of a batch that is so.
    fn until(&mut self, is_it: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut batches = self.0.by_ref().flat_map(|line| batches(&must(line)));
        batches.find(|words| is_it(words)).expect("there is one")
    }

    fn rest(self) -> String {
        self.0.map(|line| must(line) + "\n").collect()
    }
}

#[test]
fn help_names_the_options_and_no_internals() {
    let help = queue_workers(&["--help"]);
    help_names(
        help,
        &[
            "--processes",
            "--messages",
            "--types",
            "--pause",
            "--expiry",
            "--kill",
            "--without-lock",
            "--directory",
        ],
        &["--worker", "--database", "--gather"],
    );
}

#[test]
fn a_bad_value_is_refused_with_a_message() {
    for (arguments, said) in [
        (["--processes", "1"], "2..=64"),
        (["--messages", "19"], "20..=5000"),
        (["--types", "7"], "2..=6"),
        (["--pause", "soon"], "such as `20ms`"),
        (["--expiry", "99ms"], "at least 100ms"),
        (["--kill", "--without-lock"], "cannot be used with"),
    ] {
        refuses(queue_workers(&arguments), &[arguments[0], said]);
    }
}

#[tokio::test]
async fn files_of_an_earlier_run_are_left_alone() {
    let directory = must(tempfile::tempdir());
    must(std::fs::write(directory.path().join("orders.log"), "precious"));
    let output = run_on_shared(&["--directory", &directory.path().to_string_lossy()]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("is not empty: name an empty or a new one"),
        "{message}"
    );
    let kept = must(std::fs::read_to_string(directory.path().join("orders.log")));
    assert_eq!(kept, "precious");
}

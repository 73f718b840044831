//! The program `report`, run as a user runs it.

use std::process::{Command, Output, Stdio};

use mongolock_tests::{must, shared};

use crate::run::{Alone, database_of, has_line, help_names, on_shared, program, refuses, text};

fn report(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_report"), arguments)
}

async fn run_on_shared(arguments: &[&str]) -> Output {
    on_shared(report(arguments)).await
}

#[tokio::test]
async fn no_update_is_lost() {
    let arguments = ["--processes", "3", "--calls", "8", "--ids", "2", "--hold", "10ms"];
    let output = run_on_shared(&arguments).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in ["calls 24 of 24", "lost updates 0", "overlaps 0"] {
        assert!(has_line(&output, line), "{line}: {}", text(&output));
    }
    assert!(text(&output).contains("rose strictly"), "{}", text(&output));
    let calls = text(&output).lines().filter(|line| line.starts_with(' ')).count();
    assert_eq!(calls, 24, "{}", text(&output));
}

#[tokio::test]
async fn without_the_lock_the_checks_find_what_goes_wrong() {
    let output = run_on_shared(&["--ids", "1", "--calls", "4", "--hold", "100", "--without-lock"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(has_line(&output, "calls 12 of 12"), "{}", text(&output));
    assert!(!has_line(&output, "lost updates 0"), "{}", text(&output));
    assert!(!has_line(&output, "overlaps 0"), "{}", text(&output));
}

#[tokio::test]
async fn its_database_on_a_given_server_is_dropped() {
    let uri = must(shared().await).uri();
    let program = must(
        report(&["--calls", "2"])
            .env("MONGODB_URI", uri)
            .stdout(Stdio::null())
            .spawn(),
    );
    let pid = program.id();
    assert!(must(program.wait_with_output()).status.success());
    let client = must(must(shared().await).client().await);
    let names = must(client.list_database_names().await);
    let own = database_of("report", pid);
    assert!(!names.iter().any(|name| name.starts_with(&own)), "{names:?}");
}

#[test]
fn help_names_the_options() {
    let help = report(&["--help"]);
    help_names(
        help,
        &["--processes", "--calls", "--ids", "--hold", "--without-lock"],
        &["--database"],
    );
}

#[test]
fn a_bad_value_is_refused_with_a_message() {
    for (option, value, said) in [
        ("--processes", "0", "1..=64"),
        ("--calls", "many", "invalid digit"),
        ("--ids", "0", "1..=10000"),
        ("--hold", "5 minutes", "such as `20ms`"),
    ] {
        refuses(report(&[option, value]), &[option, said]);
    }
}

#[test]
fn a_server_that_does_not_answer_is_an_error_and_not_a_panic() {
    let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let output = must(report(&[]).env("MONGODB_URI", uri).output());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("Error: ") && !message.contains("panicked"),
        "{message}"
    );
}

fn at_work() -> Alone {
    Alone::start("report", report(&["--calls", "1000"]))
}

#[tokio::test]
async fn killed_it_leaves_nothing() {
    at_work().killed_leaves_nothing().await;
}

#[cfg(unix)]
#[tokio::test]
async fn interrupted_it_leaves_nothing() {
    at_work().interrupted_leaves_nothing().await;
}

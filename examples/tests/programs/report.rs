//! The program `report`, run as a user runs it.

use std::process::{Command, Stdio};

use mongolock_tests::{must, shared};

use crate::run::{Alone, database_of, error_of, fails, passes, program};

fn report(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_report"), arguments)
}

#[tokio::test]
async fn no_update_is_lost() {
    let arguments = ["--processes", "3", "--calls", "8", "--ids", "2", "--hold", "10ms"];
    let text = passes(report(&arguments)).await;
    text.has_lines(&[
        "calls 24 of 24",
        "lost updates 0",
        "overlaps 0",
        "tokens rise strictly in every report, in the order of the writes",
    ]);
    assert_eq!(text.table().count(), 24, "{text:?}");
}

#[tokio::test]
async fn without_the_lock_updates_are_lost() {
    let arguments = ["--ids", "1", "--calls", "4", "--hold", "100", "--without-lock"];
    let text = fails(report(&arguments)).await;
    text.has_lines(&["calls 12 of 12", "tokens none"]);
    let verdict = text.last_line();
    assert!(
        verdict.contains(" of 12 updates lost (report 1)") && verdict.contains(" overlaps (report 1)"),
        "{verdict}"
    );
}

#[tokio::test]
async fn its_database_on_a_given_server_is_dropped() {
    let mut program = report(&["--calls", "2"]);
    let shared = must(shared().await);
    let program = must(
        program
            .env("MONGODB_URI", shared.uri())
            .stdout(Stdio::null())
            .spawn(),
    );
    let own = database_of("report", program.id());
    assert!(must(program.wait_with_output()).status.success());
    let names = must(must(shared.client().await).list_database_names().await);
    assert!(!names.iter().any(|name| name.starts_with(&own)), "{names:?}");
}

#[test]
fn an_unreachable_server_is_an_error_and_not_a_panic() {
    let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let message = error_of(report(&[]).env("MONGODB_URI", uri));
    assert!(message.contains("cannot create the reports"), "{message}");
}

fn at_work() -> Alone {
    Alone::start("report", report(&["--calls", "1000"]))
}

#[tokio::test]
async fn killed_it_leaves_nothing() {
    at_work().killed_leaves_nothing().await;
}

#[tokio::test]
async fn interrupted_it_leaves_nothing() {
    at_work().interrupted_leaves_nothing().await;
}

//! The program `nightly_job`, run as a user runs it.
//!
//! On a busy machine an instance may leave a tick out, or none may run the job at it until a later one. The program
//! ends when each tick has run and all instances have come that far, however long that takes.

use std::process::{Command, Output};

use crate::old_run::{has_line, help_names, on_shared, program, refuses, text};

fn nightly_job(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_nightly_job"), arguments)
}

async fn every_second(arguments: &[&str]) -> Output {
    let mut job = nightly_job(&["--schedule", "* * * * * *"]);
    job.args(arguments);
    on_shared(job).await
}

/// The lines of the ticks: they begin with a time of day.
fn ticks(output: &Output) -> usize {
    let is_tick = |line: &&str| line.as_bytes().get(2) == Some(&b':');
    text(output).lines().filter(is_tick).count()
}

#[tokio::test]
async fn each_tick_runs_once() {
    let output = every_second(&["--ticks", "3"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in [
        "ticks 3",
        "ran once 3",
        "more than once 0",
        "not at all 0",
        "tokens rose from hold to hold",
    ] {
        assert!(has_line(&output, line), "{line}: {}", text(&output));
    }
    assert_eq!(ticks(&output), 3, "{}", text(&output));
}

/// Far beyond `min_hold`, so that only the record keeps the late ones from running it again.
#[tokio::test]
async fn each_tick_runs_once_although_instances_come_later_than_min_hold() {
    let output = every_second(&["--ticks", "2", "--late", "2s"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(has_line(&output, "ran once 2"), "{}", text(&output));
}

#[tokio::test]
async fn the_others_go_on_when_an_instance_is_killed() {
    let output = every_second(&["--ticks", "4", "--kill"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output).contains(" is killed\n"), "{}", text(&output));
    assert!(has_line(&output, "ran once 4"), "{}", text(&output));
    assert_eq!(ticks(&output), 4, "{}", text(&output));
}

#[tokio::test]
async fn without_the_lock_the_job_runs_more_than_once() {
    let output = every_second(&["--ticks", "2", "--without-lock"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for line in ["ticks 2", "not at all 0", "tokens none"] {
        assert!(has_line(&output, line), "{line}: {}", text(&output));
    }
    assert!(!has_line(&output, "more than once 0"), "{}", text(&output));
}

#[test]
fn help_names_the_options() {
    let help = nightly_job(&["--help"]);
    help_names(
        help,
        &[
            "--ticks",
            "--schedule",
            "--work",
            "--late",
            "--kill",
            "--without-lock",
        ],
        &["--instance", "--first", "--database"],
    );
}

#[test]
fn a_bad_value_is_refused_with_a_message() {
    for (option, value, said) in [
        ("--ticks", "0", "1..=1000"),
        ("--schedule", "at three", "such as `0 0 3 * * *`"),
        ("--schedule", "0 0 3 30 2 *", "never comes"),
        ("--work", "5 minutes", "such as `20ms`"),
        ("--late", "1 s", "such as `20ms`"),
    ] {
        refuses(nightly_job(&[option, value]), &[option, said]);
    }
}

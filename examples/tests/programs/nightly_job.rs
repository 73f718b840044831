//! The program `nightly_job`, run as a user runs it.
//!
//! On a busy machine an instance may call the job of a tick only at a later one. The program ends when each tick has run and
//! all instances have come that far, however long that takes.

use std::process::Command;

use crate::run::{Text, fails, passes, program};

/// The program with a tick every second.
fn nightly_job(arguments: &[&str]) -> Command {
    let every_second = ["--schedule", "* * * * * *"];
    program(
        env!("CARGO_BIN_EXE_nightly_job"),
        &[&every_second, arguments].concat(),
    )
}

/// The number of lines that begin with a time of day.
fn ticks(text: &Text) -> usize {
    let is_tick = |line: &&str| line.as_bytes().get(2) == Some(&b':');
    text.lines().filter(is_tick).count()
}

#[tokio::test]
async fn each_tick_runs_once() {
    let text = passes(nightly_job(&["--ticks", "3"])).await;
    text.has_lines(&[
        "ticks 3",
        "ran once 3",
        "more than once 0",
        "not at all 0",
        "tokens one for each run",
    ]);
    assert_eq!(ticks(&text), 3, "{text:?}");
}

/// An instance that comes after the end of the run, and after the next tick, finds the mark.
#[tokio::test]
async fn each_tick_runs_once_if_instances_are_late() {
    let text = passes(nightly_job(&["--ticks", "2", "--late", "2s"])).await;
    text.has_lines(&["ran once 2"]);
}

#[tokio::test]
async fn the_others_continue_when_an_instance_is_killed() {
    let text = passes(nightly_job(&["--ticks", "4", "--kill"])).await;
    assert_eq!(text.count(" is killed"), 1, "{text:?}");
    // An instance that is killed between its work and the mark leaves a tick that runs again.
    text.has_lines(&["more than once 0", "not at all 0"]);
    assert_eq!(ticks(&text), 4, "{text:?}");
}

#[tokio::test]
async fn without_the_lock_the_job_runs_more_than_once() {
    let text = fails(nightly_job(&["--ticks", "2", "--without-lock"])).await;
    text.has_lines(&["ticks 2", "not at all 0", "tokens none"]);
    assert!(
        text.last_line().contains(" of 2 ticks ran more than once"),
        "{text:?}"
    );
}

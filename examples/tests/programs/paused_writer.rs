//! The program `paused_writer`, run as a user runs it.

use std::process::Command;

use crate::run::{Alone, Text, passes, program};

fn paused_writer(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_paused_writer"), arguments)
}

#[track_caller]
fn has_results(text: &Text, runs: u32) {
    let all = format!("{runs} of {runs} stale writes were");
    text.has_lines(&[
        &format!("plain {all} accepted: the update of writer 2 is lost"),
        &format!("fenced {all} rejected: the update of writer 2 is kept"),
        &format!("guarded commit {all} rejected: the update of writer 2 is kept"),
    ]);
}

#[tokio::test]
async fn a_timeline_shows_each_step() {
    let text = passes(paused_writer(&[])).await;
    has_results(&text, 1);
    for (part, times) in [
        ("writer 1 is stopped;", 3),
        ("writer 2 acquires the lock, token ", 3),
        ("writer 2 writes 150", 3),
        ("writer 1 continues, and writes 110", 3),
        ("LOST UPDATE: the balance is 110", 1),
        ("REJECTED: the balance is 150", 2),
    ] {
        assert_eq!(text.count(part), times, "{part}: {text:?}");
    }
    // The rejection of the fence names the tokens of both writers, which the timeline has shown before.
    let acquired = text
        .lines()
        .filter_map(|line| line.split_once("acquires the lock, token "));
    let tokens: Vec<&str> = acquired.filter_map(|(_, rest)| rest.split(',').next()).collect();
    let [_, _, first, second, _, _] = tokens[..] else {
        panic!("{tokens:?}: {text:?}");
    };
    let reason = format!("token {first} is stale, the account was written with token {second}");
    assert_eq!(text.count(&reason), 1, "{reason}: {text:?}");
}

#[tokio::test]
async fn runs_are_counted() {
    let text = passes(paused_writer(&["--runs", "3", "--expiry", "100ms"])).await;
    has_results(&text, 3);
    for run in 1..=3 {
        text.has_lines(&[&format!("{run} accepted, 110 rejected, 150 rejected, 150")]);
    }
    assert_eq!(text.count("writer 1 continues"), 0, "{text:?}");
}

/// The program while its writer is stopped, for as long as the longest lease.
async fn with_a_stopped_writer() -> Alone {
    let is_stopped = |line: &str| line.contains("writer 1 is stopped;");
    let alone = Alone::start_until(is_stopped, "paused_writer", paused_writer(&["--expiry", "60s"]));
    alone.has_one_stopped().await;
    alone
}

#[tokio::test]
async fn interrupted_it_leaves_no_stopped_writer() {
    with_a_stopped_writer().await.interrupted_leaves_nothing().await;
}

/// Only Linux kills a process whose parent is killed; elsewhere that depends on the parent of the parent.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn killed_it_leaves_no_stopped_writer() {
    with_a_stopped_writer().await.killed_leaves_nothing().await;
}

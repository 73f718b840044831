//! The program `paused_writer`, run as a user runs it.

use std::process::{Command, Output};

use crate::old_run::{Alone, has_line, help_names, on_shared, program, refuses, text};

fn paused_writer(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_paused_writer"), arguments)
}

fn verdicts(output: &Output, runs: u32) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in [
        format!("plain {runs} of {runs} accepted 110 the update of writer 2 is lost"),
        format!("fenced {runs} of {runs} refused 150 the update of writer 2 stands"),
        format!("guarded commit {runs} of {runs} refused 150 the update of writer 2 stands"),
    ] {
        assert!(has_line(output, &line), "{line}: {}", text(output));
    }
}

#[tokio::test]
async fn a_timeline_shows_who_did_what() {
    let output = on_shared(paused_writer(&[])).await;
    verdicts(&output, 1);
    let shown = text(&output);
    let count = |part: &str| shown.lines().filter(|line| line.contains(part)).count();
    for (part, times) in [
        ("writer 1 is stopped", 3),
        ("writer 2 acquires the lock, token ", 3),
        ("writer 2 has written 150", 3),
        ("writer 1 goes on", 3),
        ("LOST UPDATE, the balance is 110", 1),
        ("REFUSED, the balance is 150", 2),
    ] {
        assert_eq!(count(part), times, "{part}: {shown}");
    }
    // The message of the fence names the tokens of both writers, as they were shown before.
    let tokens: Vec<&str> = shown
        .lines()
        .filter_map(|line| {
            line.split_once("token ")?
                .1
                .split_once(',')
                .map(|(token, _)| token)
        })
        .filter(|token| token.parse::<i64>().is_ok())
        .collect();
    let [_, _, first, second, _, _] = tokens[..] else {
        panic!("{tokens:?}: {shown}");
    };
    let message =
        format!("token {first} was refused, because a later holder of the lock has written with {second}");
    assert_eq!(count(&message), 1, "{message}: {shown}");
}

#[tokio::test]
async fn runs_are_counted() {
    let output = on_shared(paused_writer(&["--runs", "3", "--expiry", "100ms"])).await;
    verdicts(&output, 3);
    for run in 1..=3 {
        let line = format!("{run} accepted, 110 refused, 150 refused, 150");
        assert!(has_line(&output, &line), "{line}: {}", text(&output));
    }
    assert!(!text(&output).contains("writer 1 goes on"), "{}", text(&output));
}

#[test]
fn help_names_the_options() {
    let help = paused_writer(&["--help"]);
    help_names(
        help,
        &["--runs", "--expiry", "Exit status"],
        &["--writer", "--database"],
    );
}

#[test]
fn a_bad_value_is_refused_with_a_message() {
    for (option, value, said) in [
        ("--runs", "0", "1..=10000"),
        ("--expiry", "5 minutes", "such as `20ms`"),
        ("--expiry", "99ms", "at least `100ms`"),
        ("--expiry", "61s", "at most `60s`"),
    ] {
        refuses(paused_writer(&[option, value]), &[option, said]);
    }
}

/// At the moment when its writer is stopped, for as long as the longest lease.
#[cfg(unix)]
async fn with_a_stopped_writer() -> Alone {
    let is_stopped = |line: &str| line.contains("writer 1 is stopped;");
    let alone = Alone::start_until(is_stopped, "paused_writer", paused_writer(&["--expiry", "60s"]));
    alone.has_one_stopped().await;
    alone
}

#[cfg(unix)]
#[tokio::test]
async fn interrupted_it_leaves_no_stopped_writer() {
    with_a_stopped_writer().await.interrupted_leaves_nothing().await;
}

/// Only Linux kills a process whose parent is killed; elsewhere it depends on who the parent's parent is.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn killed_it_leaves_no_stopped_writer() {
    with_a_stopped_writer().await.killed_leaves_nothing().await;
}

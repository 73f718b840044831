//! The program `transfer`, run as a user runs it.

use std::process::{Command, Output, Stdio};

use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must};
use rustix::process::{Pid, Signal, kill_process};

use crate::old_run::{
    Alone, database_of, has_line, help_names, on_shared, processes, program, refuses, text,
};

fn transfer(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_transfer"), arguments)
}

async fn run_on_shared(arguments: &[&str]) -> Output {
    on_shared(transfer(arguments)).await
}

/// The lines of one process, without its number.
fn lines_of(output: &Output, process: &str) -> Vec<String> {
    let lines = text(output);
    let words = lines
        .lines()
        .filter(|line| line.starts_with(' '))
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words[0] == process)
        .map(|words| words[1..].join(" "))
        .collect()
}

/// The line in which a process says how the transfer of its own went that was stopped.
fn stopped(output: &Output) -> Vec<String> {
    let lines = lines_of(output, "1");
    assert!(
        lines.iter().all(|line| line.starts_with("1 -> 2 500 ")),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("waits for its approval"), "{lines:?}");
    lines
}

#[tokio::test]
async fn the_stopped_transfer_is_refused_and_the_books_are_right() {
    let output = run_on_shared(&[]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in [
        "sum of balances 10400 of 10400",
        "accounts each has its opening balance and its entries",
        "below zero none",
        "over the limit none",
        "tokens rose strictly between any two accounts, in the order of the entries",
        "stopped transfer is not in the journal",
        "Everything is right.",
    ] {
        assert!(has_line(&output, line), "{line}: {}", text(&output));
    }
    let stopped = stopped(&output);
    assert!(
        stopped[1].ends_with("refused: the lock was lost; once more"),
        "{stopped:?}"
    );
    assert!(stopped[2].ends_with("500 is the limit of 1-2"), "{stopped:?}");
    assert_eq!(stopped.len(), 3);
    let mut booked = 0;
    for process in ["2", "3", "4"] {
        let lines = lines_of(&output, process);
        let ended = lines.iter().filter(|line| !line.ends_with("once more")).count();
        assert_eq!(ended, 8, "{lines:?}");
        booked += lines.iter().filter(|line| line.contains("booked: ")).count();
    }
    assert!(
        has_line(&output, &format!("journal entries {booked}")),
        "{}",
        text(&output)
    );
}

#[tokio::test]
async fn without_the_guard_the_limit_is_broken() {
    let output = run_on_shared(&["--processes", "2", "--transfers", "1", "--without-guard"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stopped(&output)[1].contains("booked: "), "{}", text(&output));
    // The amount of the other transfer follows from the numbers of its process and of itself.
    for line in [
        "journal entries 2",
        "sum of balances 10400 of 10400",
        "over the limit WRONG: 620 moved between 1-2, 500 is the limit",
        "tokens WRONG: did not rise between 1-2",
        "stopped transfer WRONG: is in the journal",
        "Something went wrong.",
    ] {
        assert!(has_line(&output, line), "{line}: {}", text(&output));
    }
}

#[tokio::test]
async fn many_transfers_between_many_accounts_are_right() {
    let arguments = ["--processes", "6", "--transfers", "40", "--accounts", "5"];
    let output = run_on_shared(&[&arguments[..], &["--approval", "1ms"]].concat()).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // What the first account is to pay to each of the others is more than the limit, and it can pay all of it.
    for pair in ["1-2", "1-3", "1-4", "1-5"] {
        let refused = format!("500 is the limit of {pair}");
        assert!(text(&output).contains(&refused), "{pair}: {}", text(&output));
    }
}

/// The amounts follow from the numbers of the process and of its transfers.
#[tokio::test]
async fn an_account_pays_what_it_has() {
    let output = run_on_shared(&["--processes", "2", "--transfers", "3", "--accounts", "2"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut lines = lines_of(&output, "2");
    lines.retain(|line| !line.ends_with("once more"));
    let ends = [
        "booked: account 2 has 80, account 1 has 10120",
        "booked: account 2 has 30, account 1 has 10170",
        "refused: account 2 has less than 100",
    ];
    assert_eq!(lines.len(), ends.len(), "{lines:?}");
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{end}: {lines:?}");
    }
}

#[tokio::test]
async fn a_standalone_server_is_a_clear_error() {
    let server = must(Server::start(ServerOptions::standalone()).await);
    let output = must(transfer(&[]).env("MONGODB_URI", server.uri()).output());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("which takes a replica set or a sharded cluster") && !message.contains("panicked"),
        "{message}"
    );
    assert_eq!(text(&output), "", "nothing was begun");
}

#[test]
fn help_names_the_options_and_no_internals() {
    let help = transfer(&["--help"]);
    help_names(
        help,
        &[
            "--processes",
            "--transfers",
            "--accounts",
            "--approval",
            "--without-guard",
        ],
        &["--worker", "--database"],
    );
}

#[test]
fn a_bad_value_is_refused_with_a_message() {
    for (option, value, said) in [
        ("--processes", "1", "2..=64"),
        ("--transfers", "none", "invalid digit"),
        ("--accounts", "21", "2..=20"),
        ("--approval", "5 minutes", "such as `20ms`"),
    ] {
        refuses(transfer(&[option, value]), &[option, said]);
    }
}

/// With its first process stopped, and the others at a transfer that takes long.
async fn with_a_stopped_process() -> Alone {
    let is_stopped = |line: &str| line.starts_with("Process 1 is stopped.");
    let alone = Alone::start_until(is_stopped, "transfer", transfer(&["--approval", "60m"]));
    alone.has_one_stopped().await;
    alone
}

#[tokio::test]
async fn interrupted_it_leaves_no_stopped_process() {
    with_a_stopped_process().await.interrupted_leaves_nothing().await;
}

/// Elsewhere than on Linux nothing tells a stopped process that its parent was killed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn killed_it_leaves_no_stopped_process() {
    with_a_stopped_process().await.killed_leaves_nothing().await;
}

/// An error while the first process is stopped: another one is killed.
#[tokio::test]
async fn a_process_that_fails_is_named() {
    let program = must(
        transfer(&["--processes", "2", "--approval", "60m"])
            .env_remove("MONGODB_URI")
            .stdout(Stdio::piped())
            .spawn(),
    );
    let second = format!("--worker 2 --database {}", database_of("transfer", program.id()));
    let find = || async { find(&second) };
    let pid = must(eventually(AMPLE, "the second process", find).await);
    must(kill_process(pid, Signal::KILL));
    let output = must(program.wait_with_output());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output).contains("process 2: signal: 9"),
        "{}",
        text(&output)
    );
}

/// The process with this on its command line.
fn find(text: &str) -> Option<Pid> {
    let processes = processes("pid,args");
    let line = processes.lines().find(|line| line.contains(text))?;
    Pid::from_raw(line.split_whitespace().next()?.parse().ok()?)
}

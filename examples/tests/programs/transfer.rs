//! The program `transfer`, run as a user runs it.

use std::process::{Command, Stdio};

use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must};

use crate::run::{Alone, Text, error_of, fails, passes, program, signal, worker};

fn transfer(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_transfer"), arguments)
}

/// The lines of one process, without its number.
fn lines_of(text: &Text, process: &str) -> Vec<String> {
    let own = text.table().filter(|words| words[0] == process);
    own.map(|words| words[1..].join(" ")).collect()
}

/// The lines of the stopped process, which begin with the wait for the approval.
fn stopped(text: &Text) -> Vec<String> {
    let lines = lines_of(text, "1");
    assert!(
        lines.iter().all(|line| line.starts_with("1 -> 2 500 ")),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("waits for its approval"), "{lines:?}");
    lines
}

#[tokio::test]
async fn the_stopped_transfer_is_rejected_and_the_books_are_right() {
    let text = passes(transfer(&[])).await;
    text.has_lines(&[
        "sum of balances 10400",
        "accounts each has its opening balance and its entries",
        "below zero none",
        "over the limit none",
        "tokens rise strictly between any two accounts, in the order of the entries",
        "stopped transfer is not in the journal",
    ]);
    let stopped = stopped(&text);
    let [_, rejected, repeated] = &stopped[..] else {
        panic!("{stopped:?}");
    };
    assert!(
        rejected.ends_with("rolled back: the locks are lost; trying again"),
        "{stopped:?}"
    );
    assert!(repeated.ends_with("500 is the limit of 1-2"), "{stopped:?}");
    let mut booked = 0;
    for process in ["2", "3", "4"] {
        let lines = lines_of(&text, process);
        let ended = lines
            .iter()
            .filter(|line| !line.ends_with("trying again"))
            .count();
        assert_eq!(ended, 8, "{lines:?}");
        booked += lines.iter().filter(|line| line.contains("booked: ")).count();
    }
    text.has_lines(&[&format!("journal entries {booked}")]);
}

#[tokio::test]
async fn without_the_guard_the_limit_is_broken() {
    let arguments = ["--processes", "2", "--transfers", "1", "--without-guard"];
    let text = fails(transfer(&arguments)).await;
    assert!(stopped(&text)[1].contains("booked: "), "{text:?}");
    text.has_lines(&["journal entries 2", "sum of balances 10400"]);
    // The amount of the other transfer follows from the numbers of its process and of itself.
    let verdict = "FAILED: 620 moved between 1-2, 500 is the limit; tokens do not rise between 1-2; \
                   the stopped transfer is in the journal";
    assert_eq!(text.last_line(), verdict);
}

#[tokio::test]
async fn many_transfers_between_many_accounts_are_right() {
    let arguments = [
        "--processes=6",
        "--transfers=40",
        "--accounts=5",
        "--approval=1ms",
    ];
    let text = passes(transfer(&arguments)).await;
    // What account 1 is to pay to each of the others is more than the limit, and it can pay all of it.
    for pair in ["1-2", "1-3", "1-4", "1-5"] {
        let refused = format!("500 is the limit of {pair}");
        assert!(text.count(&refused) > 0, "{pair}: {text:?}");
    }
}

/// The amounts follow from the numbers of the process and of its transfers.
#[tokio::test]
async fn an_account_pays_what_it_has() {
    let text = passes(transfer(&[
        "--processes",
        "2",
        "--transfers",
        "3",
        "--accounts",
        "2",
    ]))
    .await;
    let mut lines = lines_of(&text, "2");
    lines.retain(|line| !line.ends_with("trying again"));
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
    let message = error_of(transfer(&[]).env("MONGODB_URI", server.uri()));
    assert!(
        message.contains("this needs a replica set or a sharded cluster"),
        "{message}"
    );
}

/// The program while its first process is stopped, and the others are at a long transfer.
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

/// Elsewhere than on Linux nothing ends a stopped process whose parent is killed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn killed_it_leaves_no_stopped_process() {
    with_a_stopped_process().await.killed_leaves_nothing().await;
}

/// An error while the first process is stopped: another process is killed.
#[tokio::test]
async fn a_process_that_fails_is_named() {
    let program = must(
        transfer(&["--processes", "2", "--approval", "60m"])
            .env_remove("MONGODB_URI")
            .stdout(Stdio::piped())
            .spawn(),
    );
    let second = || async { worker("transfer", program.id(), "2") };
    signal(
        "KILL",
        must(eventually(AMPLE, "the second process", second).await),
    );
    let output = must(program.wait_with_output());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let verdict = text.lines().last().expect("it prints a verdict");
    assert!(
        verdict.starts_with("FAILED: ") && verdict.contains("process 2: signal: 9"),
        "{text}"
    );
}

//! The program `edit_document`, run as a user runs it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use mongolock_tests::{TestDb, must, test_db};

use crate::run::{Text, error_of, passes, program};

fn edit_document(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_edit_document"), arguments)
}

/// S2.1 to S2.7 and S2.9 to S2.11: a scene checks each.
#[tokio::test]
async fn every_scene_passes() {
    let text = passes(edit_document(&[])).await;
    text.has_lines(&["scenes 8"]);
    for (step, result) in [
        (
            "bert@desk-5 opens item 1",
            "anna@desk-3# locked it ; lease valid for another ",
        ),
        (
            "all at once 12 sessions open item 2",
            "1 got it, 11 saw which session has it",
        ),
        ("the check compares the bytes of item 3", "identical"),
        ("anna@desk-3 ends the session", "2 items released"),
        ("the server ends the session cleo@laptop#", "2 items released"),
        (
            "anna@desk-3 saves item 9:",
            "not saved: and bert@desk-5# has since saved \"Bert's text\";",
        ),
        (
            "anna@desk-3 saves item 10:",
            "not saved: bert@desk-5# has saved \"Bert's text\" ",
        ),
        (
            "anna@desk-3 saves item 11:",
            "saved, but your lock had expired or was released:",
        ),
    ] {
        assert!(has_step(&text, step, result), "{step}: {result}: {text:?}");
    }
}

/// Whether there is a step with this result: its lines contain all these words.
fn has_step(text: &Text, step: &str, result: &str) -> bool {
    let has = |line: &str, wanted: &str| wanted.split(' ').all(|word| line.contains(word));
    let lines: Vec<&str> = text.lines().collect();
    let mut steps = lines
        .windows(2)
        .filter(|pair| pair[1].trim_start().starts_with("-> "));
    steps.any(|pair| has(pair[0], step) && has(pair[1], result))
}

/// A user at a terminal.
struct Editor {
    process: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Editor {
    fn start(db: &TestDb, name: &str, more: &[&str]) -> Self {
        let mut command = edit_document(&["--database", db.name(), "--editor", name]);
        command.args(more).env("MONGODB_URI", db.uri());
        let mut process = must(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn());
        let answers = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut editor = Self { process, answers };
        while !editor.answer().starts_with("quit ") {}
        editor
    }

    fn answer(&mut self) -> String {
        must(self.answers.next().expect("an answer"))
    }

    /// The answer to a command.
    fn types(&mut self, command: &str) -> String {
        let input = self.process.stdin.as_mut().expect("it is piped");
        must(writeln!(input, "{command}"));
        self.answer()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// S2.4, S2.6, S2.7, S2.11.
#[tokio::test]
async fn two_users_edit_at_their_terminals() {
    let db = test_db().await;
    let mut anna = Editor::start(&db, "anna", &[]);
    let mut bert = Editor::start(&db, "bert", &[]);
    let locked = "locked for you; its text is ";
    assert_eq!(anna.types("open 1"), format!("{locked}\"draft of item 1\""));
    let holder = bert.types("open 1");
    assert!(
        holder.starts_with("anna#") && holder.contains(" locked it "),
        "{holder}"
    );
    assert!(bert.types("who").starts_with("item 1: anna#"));
    assert_eq!(anna.types("save 1 two words"), "saved and closed");
    assert_eq!(bert.types("open 1"), format!("{locked}\"two words\""));
    assert_eq!(bert.types("close 1"), "closed");
    assert_eq!(bert.types("who"), "no item is open");
    assert_eq!(bert.types("open 99"), "Error: there is no item 99");
    assert!(
        bert.types("open one")
            .starts_with("Error: write the number of an item")
    );
    for line in ["", "open", "open 1 2", "save 1", "end", "who is it", "delete 1"] {
        let answer = bert.types(line);
        assert!(answer.contains("is not a command: open N, "), "{line}: {answer}");
    }

    // Anna's process is killed.
    assert!(anna.types("open 1").starts_with(locked));
    assert!(anna.types("open 2").starts_with(locked));
    must(anna.process.kill());
    let holder = bert.types("open 2");
    let session = holder.split(' ').next().expect("the first word").to_owned();
    assert!(session.starts_with("anna#"), "{holder}");
    assert_eq!(bert.types("release 1"), "released");
    assert_eq!(bert.types(&format!("end {session}")), "1 item released");
    assert!(bert.types("open 2").starts_with(locked));
    assert_eq!(bert.types("quit"), "1 item released");
    assert!(must(bert.process.wait()).success());
}

/// S2.9: here the session of the killed process is not ended.
#[tokio::test]
async fn the_items_of_a_killed_process_are_free_after_its_expiry() {
    let db = test_db().await;
    let mut anna = Editor::start(&db, "anna", &["--expiry", "2s"]);
    let mut bert = Editor::start(&db, "bert", &[]);
    assert!(anna.types("open 1").starts_with("locked for you"));
    must(anna.process.kill());
    let begun = Instant::now();
    while bert.types("open 1").starts_with("anna#") {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is still locked");
    }
    assert!(bert.types("who").starts_with("item 1: bert#"));
}

#[test]
fn a_session_at_the_terminal_needs_a_server() {
    let mut command = edit_document(&["--database=d", "--editor=e"]);
    let message = error_of(command.env_remove("MONGODB_URI"));
    assert!(message.contains("set MONGODB_URI"), "{message}");
}

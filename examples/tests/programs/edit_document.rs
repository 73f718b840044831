//! The program `edit_document`, run as a user runs it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use mongolock_tests::{TestDb, must, test_db};

use crate::old_run::{has_line, help_names, on_shared, program, refuses, text};

const SCENES: [&str; 8] = [
    "An open item is locked, others are told who has it, saving frees it",
    "Of many who open an item at the same moment, one gets it",
    "Locking changes nothing in an item: locks have their own collection",
    "A session may have several items; they are free at once when it ends",
    "A session whose process has crashed is ended from elsewhere",
    "An item that somebody has left open is free after a time",
    "After a release by hand the next may save, and the first one not",
    "Whoever saves after losing the lock is told, also if nobody else has",
];

fn edit_document(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_edit_document"), arguments)
}

/// S2.1 to S2.7 and S2.9 to S2.11: each is checked by a scene.
#[tokio::test]
async fn every_scene_goes_as_expected() {
    let output = on_shared(edit_document(&[])).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (number, scene) in (1..).zip(SCENES) {
        let line = format!("{number} {scene} as expected");
        assert!(has_line(&output, &line), "{line}: {}", text(&output));
    }
    assert!(
        has_line(&output, "Everything is as expected."),
        "{}",
        text(&output)
    );
    for said in [
        "bert@desk-5 opens item 1 -> anna@desk-3#* has had it for * ms, and has it for * s more at least",
        "all at once 12 sessions open item 2 -> 1 got it, 11 were told who has it",
        "the check compares item 3 before, while locked, and after -> equal to the byte",
        "anna@desk-3 ends the session -> 2 items are given back",
        "the server ends the session cleo@laptop#* -> 2 items are given back",
        "anna@desk-3 saves item 9: \"Anna's text\" -> too late, for your lock had ended; bert@desk-5#*",
        "anna@desk-3 saves item 10: \"Anna's text\" -> refused, for a later session has saved; bert@desk-5#*",
        "anna@desk-3 saves item 11: \"Anna's text\" -> too late, for your lock had ended; your text is there, *",
    ] {
        assert!(is_said(said, &text(&output)), "{said}: {}", text(&output));
    }
}

/// Whether somebody does something and gets this answer; `*` stands for anything within a line.
fn is_said(wanted: &str, text: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.lines().map(words).collect();
    let dialogue = lines.windows(2).filter(|pair| pair[1].starts_with("->"));
    dialogue.map(|pair| pair.join(" ")).any(|said| {
        let after_the_time = said.split_once(" s ").map_or("", |(_, rest)| rest);
        fits(wanted, after_the_time)
    })
}

fn fits(wanted: &str, said: &str) -> bool {
    let mut parts = wanted.split('*');
    let begin = parts.next().expect("there is always one");
    let Some(mut rest) = said.strip_prefix(begin) else {
        return false;
    };
    for part in parts {
        match rest.find(part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || wanted.ends_with('*')
}

/// Somebody at a terminal of their own.
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

    fn says(&mut self, command: &str) -> String {
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

/// S2.4, S2.6, S2.7, S2.11: as two people try it.
#[tokio::test]
async fn two_people_edit_at_their_terminals() {
    let db = test_db().await;
    let mut anna = Editor::start(&db, "anna", &[]);
    let mut bert = Editor::start(&db, "bert", &[]);
    assert_eq!(
        anna.says("open 1"),
        "locked for you, it reads \"draft of item 1\""
    );
    let told = bert.says("open 1");
    assert!(
        told.starts_with("anna#") && told.contains(" has had it for "),
        "{told}"
    );
    assert!(bert.says("who").starts_with("item 1: anna#"));
    assert_eq!(anna.says("save 1 two words"), "saved and closed");
    assert_eq!(bert.says("open 1"), "locked for you, it reads \"two words\"");
    assert_eq!(bert.says("close 1"), "closed");
    assert_eq!(bert.says("who"), "nobody has an item open");
    assert_eq!(bert.says("open 99"), "Error: there is no item 99");

    // One that crashes.
    assert!(anna.says("open 1").starts_with("locked for you"));
    assert!(anna.says("open 2").starts_with("locked for you"));
    must(anna.process.kill());
    let told = bert.says("open 2");
    let session = told.split(' ').next().expect("the first word").to_owned();
    assert!(session.starts_with("anna#"), "{told}");
    assert_eq!(bert.says("release 1"), "it is free now");
    assert_eq!(bert.says(&format!("end {session}")), "1 item is given back");
    assert!(bert.says("open 2").starts_with("locked for you"));
    assert_eq!(bert.says("quit"), "1 item is given back");
    assert!(must(bert.process.wait()).success());
}

/// S2.9: nobody ends the session of a crashed process here.
#[tokio::test]
async fn the_items_of_a_killed_process_are_free_after_its_expiry() {
    let db = test_db().await;
    let mut anna = Editor::start(&db, "anna", &["--expiry", "2s"]);
    let mut bert = Editor::start(&db, "bert", &[]);
    assert!(anna.says("open 1").starts_with("locked for you"));
    must(anna.process.kill());
    let begun = std::time::Instant::now();
    while bert.says("open 1").starts_with("anna#") {
        assert!(begun.elapsed().as_secs() < 30, "it is still locked");
    }
    assert!(bert.says("who").starts_with("item 1: bert#"));
}

#[test]
fn help_says_how_to_edit_by_hand() {
    let help = edit_document(&["--help"]);
    help_names(
        help,
        &["--database", "--editor", "--expiry", "--max-hold", "MONGODB_URI"],
        &[],
    );
}

#[test]
fn a_bad_command_line_is_refused_with_a_message() {
    for (arguments, said) in [
        (&["--editor", "anna"][..], "--database"),
        (&["--database", "office"], "--editor"),
        (&["--max-hold", "1m"], "--database"),
        (&["--database=d", "--editor=e", "--expiry=99ms"], "at least 100ms"),
        (
            &["--database=d", "--editor=e", "--max-hold=soon"],
            "such as `20ms`",
        ),
    ] {
        refuses(edit_document(arguments), &[said]);
    }
}

#[test]
fn whoever_edits_needs_a_server() {
    let mut command = edit_document(&["--database=d", "--editor=e"]);
    let output = must(command.env_remove("MONGODB_URI").output());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("Error: set MONGODB_URI"), "{message}");
}

//! What the program says: help texts, errors, columns.

use std::thread;
use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, doc};
use mongolock_tests::{TestDb, locks, must, test_db};
use serde_json::Value;

use crate::fixture::{at, ends, mongolock, output, owner, restricted};
use crate::terminal::Terminal;
use crate::{doctor, log, watch};

/// The width of a terminal of these tests.
const TERMINAL: usize = 100;

/// The longest line that an error may have: a sentence of the server, with what it is about.
const LONGEST_ERROR: usize = 260;

/// What a server appends to the message of a command that it refuses.
const DUMP: [&str; 3] = ["lsid", "$clusterTime", "Kind:"];

/// An error of the server is its code, its name and one sentence. The rest follows with `-v`.
#[tokio::test]
async fn an_error_is_one_sentence_and_all_of_it_with_verbose() {
    let db = test_db().await;
    let (_server, uri) = restricted(&db, &["listIndexes"]).await;
    let said = |arguments: &[&str], words: &str| ends(at(&uri, &db, arguments), 125, words);
    let check = |command: &[&str]| {
        let short = said(command, "(error 13, Unauthorized)");
        assert!(short.contains("not authorized on "), "{command:?}: {short}");
        for part in DUMP {
            assert!(!short.contains(part), "{command:?}: {short}");
        }
        for line in short.lines() {
            assert!(line.chars().count() <= LONGEST_ERROR, "{command:?}: {line}");
        }
    };
    let check_verbose = |command: &[&str]| {
        said(&[&["-v"], command].concat(), "lsid");
    };
    // `run` repeats its attempts for ten seconds.
    thread::scope(|scope| {
        for command in [
            &["run", "a", "--", "true"][..],
            &["ls"],
            &["show", "a"],
            &["release", "a", "--yes"],
            &["watch"],
        ] {
            scope.spawn(move || check(command));
            scope.spawn(move || check_verbose(command));
        }
    });
    let (_, found, _) = output(at(&uri, &db, &["doctor"]));
    for part in DUMP {
        assert!(!found.contains(part), "{found}");
    }
}

/// A connection string of Atlas: the name is looked up, and no feature is missing. The name exists nowhere, by RFC 2606.
#[tokio::test]
async fn a_host_of_a_srv_string_is_looked_up() {
    let db = test_db().await;
    for arguments in [&["ls"][..], &["run", "a", "--", "true"], &["doctor"]] {
        let uri = "mongodb+srv://anna:S3cr3t@cluster0.locks.invalid/app";
        let begun = Instant::now();
        let said = ends(at(uri, &db, arguments), 125, "");
        let is_told = said.starts_with("mongolock: the DNS lookup ");
        assert!(is_told, "{arguments:?}: {said}");
        assert!(!said.contains("feature") && !said.contains("S3cr3t"), "{said}");
        // The resolver asks again, and a machine may have no name server at all.
        assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    }
}

/// Each help is as wide as the terminal, and no wider than can be read.
#[tokio::test]
async fn help_wraps() {
    let db = test_db().await;
    let help = |arguments: &[&str], columns: &str| {
        let mut command = mongolock(&db, arguments);
        command.env("COLUMNS", columns);
        let (code, help, _) = output(command);
        assert_eq!(code, Some(0), "{arguments:?}");
        help
    };
    for command in "run acquire extend hold ls show release watch log doctor completions".split(' ') {
        for (columns, limit) in [("60", 60), ("80", 80), ("200", TERMINAL)] {
            let help = help(&[command, "--help"], columns);
            let too_long = |line: &&str| line.chars().count() > limit && line.trim().contains(' ');
            // A usage is one line, and so is an example, which is copied.
            let is_example = |line: &&str| {
                let line = line.trim_start();
                line.starts_with("mongolock ") || line.starts_with("Usage: ")
            };
            let long = help.lines().filter(too_long).filter(|line| !is_example(line));
            let long: Vec<&str> = long.collect();
            assert!(long.is_empty(), "{command} at {columns}: {long:#?}");
        }
    }
}

/// Locks of the owners, which nobody renews.
async fn insert(db: &TestDb, all: &[(&str, &str)]) {
    let now = DateTime::now().timestamp_millis();
    let (past, end) = (now - 60_000, now + 3_600_000);
    let lock = |(name, owner): &(&str, &str)| {
        doc! { "_id": *name, "lockId": format!("{owner}#1"), "acquiredAt": DateTime::from_millis(past),
        "expiresAt": DateTime::from_millis(end), "fencingToken": 5_i64 }
    };
    must(locks(db.database()).insert_many(all.iter().map(lock)).await);
}

/// The name comes first, and the columns are as wide as what is in them. A pipe gets all of it.
#[tokio::test]
async fn the_columns_of_a_list_are_as_wide_as_their_content() {
    let db = test_db().await;
    let long = format!("report:{}:42", "x".repeat(80));
    let owner = "web-1.example.com:12345";
    insert(&db, &[("a", "anna"), (&long, owner)]).await;
    let damaged = doc! { "_id": "b", "lockId": 7 };
    must(locks(db.database()).insert_one(damaged).await);
    let (_, list, _) = output(mongolock(&db, &["ls"]));
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("NAME  "), "{list}");
    assert!(lines[1].starts_with("a  "), "{list}");
    assert!(lines[1].ends_with("  anna"), "{list}");
    assert!(lines[2].starts_with("b  "), "{list}");
    assert!(lines[2].contains("  damaged  "), "{list}");
    assert!(lines[3].starts_with(&long) && lines[3].ends_with(owner), "{list}");
    let column = lines[0].find("OWNER").expect("it has a heading");
    assert_eq!(lines[3].find(owner), Some(column), "{list}");

    let ls = r#""$ML" --database "$DB" ls; echo end"#;
    let mut terminal = Terminal::run(&db, ls);
    let screen = terminal.until("\nend");
    let screen: Vec<&str> = screen.lines().collect();
    let row = screen.iter().find(|line| line.starts_with("report:x"));
    let row = row.expect("the list has it");
    assert!(row.contains("x:42  held "), "the end of the name is shown: {row}");
    assert!(row.contains('\u{2026}'), "{row}");
    assert!(row.chars().count() <= TERMINAL, "{row}");
    assert!(row.ends_with("12345"), "the end of the owner is shown: {row}");
    let end = screen.iter().position(|line| *line == "end");
    assert_eq!(end, Some(4), "{screen:#?}");
}

/// A token orders holds that follow one another, which permits do not.
#[tokio::test]
async fn a_permit_has_no_token() {
    let db = test_db().await;
    let anna = owner(&db, "anna").await;
    let permit = must(anna.semaphore("s", 2).acquire().await);
    let number = permit.number().to_string();
    let (_, shown, _) = output(mongolock(&db, &["show", "s"]));
    assert!(shown.contains("holder     anna"), "{shown}");
    assert!(shown.contains(&format!("s #{number}\n")), "{shown}");
    assert!(!shown.contains("token"), "{shown}");
    ends(mongolock(&db, &["show", "b"]), 1, "there is no lock `b`");
    for command in [&["show", "s", "--json"][..], &["ls", "--json"]] {
        let (_, line, _) = output(mongolock(&db, command));
        let line: Value = must(serde_json::from_str(&line));
        assert_eq!(line["permit"], permit.number(), "{line}");
        assert_eq!(line["fencing_token"], Value::Null, "{line}");
    }
    let release = ["release", "s", "--permit", &number];
    let with_token = [&release[..], &["--token", "5"]].concat();
    ends(mongolock(&db, &with_token), 2, "cannot be used with");
    let release = mongolock(&db, &[&release[..], &["--yes"]].concat());
    let said = ends(release, 0, "held by anna");
    assert!(!said.contains("token"), "{said}");
    permit.lost().await;
}

#[tokio::test]
async fn completions_name_the_commands() {
    let db = test_db().await;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = output(mongolock(&db, &["completions", shell]));
        assert_eq!(code, Some(0));
        for (word, is_there) in [("release", true), ("once-per", true), ("guard-command", false)] {
            assert_eq!(script.contains(word), is_there, "{shell}: {word}");
        }
    }
}

#[tokio::test]
async fn the_help_lists_the_fields_of_json() {
    let db = test_db().await;
    for (command, wanted) in [
        ("watch", watch::FIELDS),
        ("log", log::FIELDS),
        ("doctor", doctor::FIELDS),
    ] {
        let (_, help, _) = output(mongolock(&db, &[command, "--help"]));
        let (_, fields) = help
            .split_once("Fields of --json:")
            .expect("the help has the fields");
        for field in wanted.split(' ') {
            let is_listed = fields.lines().any(|line| {
                let names = line.trim_start().split("  ").next().unwrap_or_default();
                names.split([',', ' ']).any(|name| name == field)
            });
            assert!(is_listed, "{field}: {help}");
        }
    }
}

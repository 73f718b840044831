//! Users, connection strings and databases with which no command can work, or locks would not exclude each other.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mongolock::{IndexState, LockProvider};
use mongolock_tests::{LentServer, must, test_db};

use crate::fixture::{ends, mongolock, output};

/// Commands that read, acquire or release; `log` and `watch` need a stream.
const COMMANDS: [&[&str]; 8] = [
    &["doctor"],
    &["ls"],
    &["show", "job"],
    &["log", "job"],
    &["watch"],
    &["release", "job", "--yes"],
    &["run", "job", "--", "true"],
    &["acquire", "job", "--ttl", "1m", "--handle", "-"],
];

/// `run` waits for its lock without a limit, and the driver for a server for 30 s.
const AT_ONCE: Duration = Duration::from_secs(20);

/// The program with this connection string alone.
fn program(uri: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mongolock"));
    command.args(arguments).env("MONGODB_URI", uri);
    command
}

/// Runs commands with these options side by side. Each ends at once with 125, or with this code of `doctor`, and says all of these
/// words. Returns what they have said.
fn each_says(uri: &str, options: &[&str], commands: &[&[&str]], doctor: i32, words: &[&str]) -> String {
    let says = |command: &&[&str]| {
        let begun = Instant::now();
        let (code, out, said) = output(program(uri, &[options, *command].concat()));
        let all = format!("{command:?}: {out}{said}");
        let wanted = if command[0] == "doctor" { doctor } else { 125 };
        assert_eq!(code, Some(wanted), "{all}");
        // `watch` may tell first that there are no events.
        assert!(out.is_empty() || wanted == 1 || command[0] == "watch", "{all}");
        for word in words {
            assert!(all.contains(word), "{word}: {all}");
        }
        assert!(begun.elapsed() < AT_ONCE, "{:?}: {all}", begun.elapsed());
        all
    };
    thread::scope(|scope| {
        let start = |command| scope.spawn(move || says(command));
        let running: Vec<_> = commands.iter().map(start).collect();
        let ended = running.into_iter().map(|one| one.join().expect("it says so"));
        ended.collect()
    })
}

#[tokio::test]
async fn a_wrong_password_is_said_at_once_by_each_command() {
    let server = must(LentServer::with_users().await);
    let wrong = server.uri().replace("root:secret@", "root:wrong@");
    let permit = &["run", "--permits", "2", "a", "--", "true"][..];
    let commands = [&COMMANDS[..], &[permit]].concat();
    let options = ["--database", "app"];
    let said = each_says(&wrong, &options, &commands, 1, &["Authentication failed"]);
    assert!(!said.contains("primary"), "{said}");
}

#[tokio::test]
async fn databases_that_cannot_have_locks_are_refused_by_each_command() {
    let db = test_db().await;
    let (hosts, _) = db.uri().split_once("/?").expect("it has options");
    // Each command for one of them, and one for the others.
    let lacking = "it has no transactions and no change streams";
    for (name, commands, reason) in [
        ("local", &COMMANDS[..], "no member replicates it"),
        ("admin", &COMMANDS[..1], lacking),
        ("config", &COMMANDS[..1], lacking),
    ] {
        let refused = format!("the database is {name:?}: {reason}");
        let help = "--database app, or mongodb://host/app?authSource=admin";
        let words = [&*refused, help];
        each_says(&format!("{hosts}/{name}"), &[], commands, 125, &words);
        each_says(db.uri(), &["--database", name], commands, 125, &words);
    }
}

#[tokio::test]
async fn another_database_than_that_of_the_string_is_no_fault() {
    let db = test_db().await;
    let (hosts, _) = db.uri().split_once("/?").expect("it has options");
    let uri = format!("{hosts}/admin");
    // On a slow machine `run` ends before it has made the index.
    let provider = LockProvider::new(db.database());
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    for command in [&["run", "job", "--", "true"][..], &["ls"], &["doctor"]] {
        let arguments = [&["--database", db.name()], command].concat();
        ends(program(&uri, &arguments), 0, "");
    }
    // The lock is in the database of the option.
    ends(mongolock(&db, &["show", "job"]), 0, "");
}

#[tokio::test]
async fn hosts_of_two_sets_are_said_by_each_command() {
    let (one, other) = tokio::join!(LentServer::single(), LentServer::single());
    let (one, other) = (must(one), must(other));
    // Whichever is found first has locks to show.
    for server in [&one, &other] {
        let provider = LockProvider::new(&must(server.client().await).database("app"));
        must(must(provider.lock("job").await).release().await);
    }
    let hosts = [&one, &other].map(|server| server.node().address());
    for hosts in [[hosts[0], hosts[1]], [hosts[1], hosts[0]]] {
        let uri = format!("mongodb://{}/app", hosts.join(","));
        let named = "names two replica sets";
        let words = [
            named,
            "to another set, `mongolock`",
            "help: Name hosts of one replica set",
            hosts[0],
            hosts[1],
        ];
        each_says(&uri, &[], &COMMANDS[1..], 1, &words);
        let wrong = [
            "WRONG    connection",
            named,
            "mend: Name hosts of one replica set",
        ];
        each_says(&uri, &[], &COMMANDS[..1], 1, &wrong);
    }
}

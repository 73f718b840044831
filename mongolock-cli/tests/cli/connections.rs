//! Connection strings and databases with which locks would not exclude each other.

use std::process::Command;
use std::thread;

use mongolock::LockProvider;
use mongolock_tests::{LentServer, must, test_db};

use crate::fixture::{mongolock, output};

/// Commands that read, acquire or release; `log` and `watch` need a stream.
const COMMANDS: [&[&str]; 7] = [
    &["ls"],
    &["show", "job"],
    &["log", "job"],
    &["watch"],
    &["release", "job", "--yes"],
    &["run", "job", "--", "true"],
    &["acquire", "job", "--ttl", "1m", "--handle", "-"],
];

/// The program with this connection string alone.
fn program(uri: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mongolock"));
    command.args(arguments).env("MONGODB_URI", uri);
    command
}

#[tokio::test]
async fn databases_that_cannot_have_locks_are_refused_by_each_command() {
    let db = test_db().await;
    let (hosts, _) = db.uri().split_once("/?").expect("it has options");
    for (name, reason) in [
        ("local", "no member replicates it"),
        ("admin", "it has no transactions and no change streams"),
        ("config", "it has no transactions and no change streams"),
    ] {
        // Each command for one of them, and one for the others.
        let commands = COMMANDS.into_iter().chain([&["doctor"][..]]);
        for command in commands.take(if name == "local" { 8 } else { 1 }) {
            let named = [&["--database", name], command].concat();
            for program in [
                program(&format!("{hosts}/{name}"), command),
                program(db.uri(), &named),
            ] {
                let (code, out, said) = output(program);
                assert_eq!(code, Some(125), "{command:?}: {out}{said}");
                assert!(out.is_empty(), "{command:?}: {out}");
                assert!(
                    said.contains(&format!("the database is {name:?}: {reason}")),
                    "{said}"
                );
                assert!(
                    said.contains("--database app, or mongodb://host/app?authSource=admin"),
                    "{said}"
                );
            }
        }
    }
}

#[tokio::test]
async fn another_database_than_that_of_the_string_is_no_fault() {
    let db = test_db().await;
    let (hosts, _) = db.uri().split_once("/?").expect("it has options");
    let uri = format!("{hosts}/admin");
    for command in [&["run", "job", "--", "true"][..], &["ls"], &["doctor"]] {
        let arguments = [&["--database", db.name()], command].concat();
        let (code, out, said) = output(program(&uri, &arguments));
        assert_eq!(code, Some(0), "{out}{said}");
    }
    let (code, ..) = output(mongolock(&db, &["show", "job"]));
    assert_eq!(code, Some(0), "the lock is in the database of the option");
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
        thread::scope(|scope| {
            for command in COMMANDS {
                let uri = &uri;
                scope.spawn(move || {
                    let (code, out, said) = output(program(uri, command));
                    assert_eq!(code, Some(125), "{command:?}: {out}{said}");
                    for text in [
                        "the connection string names two replica sets: ",
                        "to another set, `mongolock`",
                        "help: Name hosts of one replica set",
                        hosts[0],
                        hosts[1],
                    ] {
                        assert!(said.contains(text), "{command:?}: {said}");
                    }
                });
            }
        });
        let (code, out, _) = output(program(&uri, &["doctor"]));
        assert_eq!(code, Some(1), "{out}");
        assert!(out.contains("WRONG    connection"), "{out}");
        assert!(out.contains("names two replica sets"), "{out}");
        assert!(out.contains("mend: Name hosts of one replica set"), "{out}");
    }
}

//! Notes about holds, and forced releases with a reason, between real processes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock_tests::{AMPLE, TestDb, eventually, must, test_db};
use nix::unistd::{Uid, User};
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Running, at, mongolock, output, provider, restricted};
use crate::leases::Scene;

/// A part of the arguments of commands, which no note may have.
const SECRET: &str = "S3cr3t";

fn waiters(db: &TestDb) -> Collection<Document> {
    db.database().collection("distributed_locks.waiters")
}

fn user() -> String {
    let user = must(User::from_uid(Uid::effective()));
    user.expect("the user has a name").name
}

/// A command that runs for as long as the lock is held.
fn endless(db: &TestDb, options: &[&str]) -> Command {
    let body = format!("true {SECRET}; exec sleep 600");
    let arguments = [
        &["run", "job", "--expiry", "5s"],
        options,
        &["--", "/bin/sh", "-c", &body],
    ]
    .concat();
    let mut command = mongolock(db, &arguments);
    command.stderr(Stdio::piped());
    command
}

async fn until_noted(db: &TestDb, name: &str, wanted: &str) -> Value {
    let noted = || async {
        let (_, shown, _) = output(mongolock(db, &["show", name, "--json"]));
        let lock: Value = serde_json::from_str(shown.lines().next()?).ok()?;
        (lock["note"] == wanted).then_some(lock)
    };
    must(eventually(AMPLE, "the note", noted).await)
}

async fn until_held(db: &TestDb) {
    let held = || async {
        output(mongolock(db, &["ls", "--held"]))
            .1
            .contains("job")
            .then_some(())
    };
    must(eventually(AMPLE, "the lock", held).await);
}

#[tokio::test]
async fn run_notes_the_user_and_the_program_without_its_arguments() {
    let db = test_db().await;
    let mut running = Running::start(endless(&db, &[]));
    let note = format!("{}: sh", user());
    until_noted(&db, "job", &note).await;
    let (_, listed, _) = output(mongolock(&db, &["ls"]));
    let row = listed.lines().nth(1).expect("there is a lock");
    assert!(listed.starts_with("NAME ") && row.ends_with(&note), "{listed}");
    let (_, shown, _) = output(mongolock(&db, &["show", "job"]));
    assert!(shown.contains(&format!("  note       {note}\n")), "{shown}");
    for wait in [&["--wait", "700ms"][..], &["--no-wait"]] {
        let arguments = [&["run", "job"], wait, &["--", "true"]].concat();
        let (code, _, said) = output(mongolock(&db, &arguments));
        assert_eq!(code, Some(75));
        assert!(said.contains(&format!("; its note: {note}")), "{said}");
    }
    let all = must(waiters(&db).find_one(doc! { "note": { "$regex": SECRET } }).await);
    assert_eq!(all, None);
    running.signal(Signal::TERM);
    running.ended().await;
}

#[tokio::test]
async fn a_note_of_its_own_replaces_it_and_an_empty_one_turns_it_off() {
    let db = test_db().await;
    let of = |note: &str| {
        let (code, _, said) = output(mongolock(&db, &["run", "job", "--note", note, "--", "true"]));
        assert_eq!((code, &*said), (Some(0), ""));
    };
    of("");
    assert_eq!(must(waiters(&db).count_documents(doc! {}).await), 0);
    of("deploy \u{1b}[31m812");
    let document = must(waiters(&db).find_one(doc! {}).await).expect("the end waits for the note");
    assert_eq!(document.get_str("note"), Ok("deploy \u{1b}[31m812"));

    let long = "a".repeat(257);
    let (code, _, said) = output(mongolock(&db, &["run", "job", "--note", &long, "--", "true"]));
    assert_eq!(code, Some(125));
    assert!(said.contains("256 bytes at most"), "{said}");
}

#[tokio::test]
async fn hold_and_acquire_note_what_they_are_told() {
    let scene = Scene::new().await;
    let ran = |line: &str| {
        let (code, _, said) = output(scene.command(line));
        assert_eq!((code, &*said), (Some(0), ""), "{line}");
    };
    ran("hold deploy --for 10m --note migration\u{7}");
    let (_, shown, _) = output(scene.command("show deploy"));
    assert!(shown.contains("  note       migration\\u{7}\n"), "{shown}");
    ran("acquire job --ttl 10m --handle lease --note step-1");
    until_noted(&scene.db, "job", "step-1").await;
    let resumed = scene.command("run --resume lease --then-detach 5m --note step-2 -- sleep 600");
    let mut running = Running::start(resumed);
    until_noted(&scene.db, "job", "step-2").await;
    running.signal(Signal::TERM);
    running.ended().await;
    let lock = until_noted(&scene.db, "job", "step-2").await;
    assert_eq!(lock["detached"], true);
}

/// The former holder says who has released its lock and why, and the operator that it has noticed it.
#[tokio::test]
async fn the_former_holder_says_who_has_released_its_lock_and_why() {
    let db = test_db().await;
    let mut running = Running::start(endless(&db, &[]));
    until_held(&db).await;
    let release = [
        "release",
        "job",
        "--reason",
        "stuck since\nthe deploy",
        "--yes",
        "--wait",
    ];
    let (code, out, said) = output(mongolock(&db, &release));
    assert_eq!((code, &*said), (Some(0), ""), "{out}");
    assert!(out.ends_with("job: its holder has noticed it\n"), "{out}");
    assert!(
        out.contains("job: released; its holder learns of it at its next renewal\n"),
        "{out}"
    );
    assert_eq!(running.code().await, Some(124));
    let said = running.said();
    let by = format!("released by force by {}", user());
    assert!(
        said.contains(&by) && said.contains("stuck since") && !said.contains("since\nthe"),
        "{said}"
    );
}

/// A stopped process cannot say anything; its guardian ends the command when the lease is over.
#[tokio::test]
async fn nobody_says_that_a_stopped_holder_has_noticed_it() {
    let db = test_db().await;
    let running = Running::start(endless(&db, &[]));
    until_held(&db).await;
    running.signal(Signal::STOP);
    let begun = Instant::now();
    let (code, out, _) = output(mongolock(&db, &["release", "job", "--yes", "--wait"]));
    assert_eq!(code, Some(3), "{out}");
    assert!(
        out.ends_with("job: nobody has said so; its lease is over\n"),
        "{out}"
    );
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(1) && waited < AMPLE, "{waited:?}");
}

#[tokio::test]
async fn nothing_is_waited_for_where_no_process_has_the_lock() {
    let scene = Scene::new().await;
    let hold = output(scene.command("hold job --for 10m"));
    assert_eq!(hold.0, Some(0), "{hold:?}");
    let (code, out, _) = output(scene.command("release job --yes --wait --reason over"));
    assert_eq!(code, Some(0));
    assert!(out.ends_with("job: released\n"), "{out}");
    let forced = must(waiters(&scene.db).find_one(doc! { "reason": "over" }).await);
    let forced = forced.expect("it is noted");
    assert_eq!(forced.get_str("by"), Ok(&*user()));
}

#[tokio::test]
async fn a_release_without_the_rights_to_note_it_says_so() {
    let db = test_db().await;
    let (server, uri) = restricted(&db, &["find", "insert", "update"]).await;
    let held = mongolock::LockProvider::new(&must(server.client().await).database(db.name()));
    let lock = held
        .lock("job")
        .expiry(Duration::from_secs(2))
        .max_hold(Duration::ZERO);
    let _guard = must(lock.acquire().await);
    let release = ["release", "job", "--yes", "--wait", "--reason", "stuck"];
    let (code, out, _) = output(at(&uri, &db, &release));
    assert_eq!(code, Some(3), "{out}");
    assert!(
        out.contains("(not noted: no access to the collection of the waiters)"),
        "{out}"
    );
    assert!(out.ends_with("its lease is over\n"), "{out}");
}

/// Those of other owners stay.
#[tokio::test]
async fn all_holds_of_an_owner_are_released_with_a_reason() {
    let db = test_db().await;
    let gone = must(provider(&db).await.to_builder().owner("gone").build());
    let other = must(must(gone.to_builder().owner("other").build()).lock("c").await);
    let lock = must(gone.lock("a").await);
    let permit = must(gone.semaphore("b", 2).acquire().await);
    let release = ["release", "--owner", "gone", "--yes", "--reason", "node lost"];
    let (code, out, said) = output(mongolock(&db, &release));
    assert_eq!((code, &*out, &*said), (Some(0), "released 2 locks of gone\n", ""));
    for lost in [lock.release().await, permit.release().await] {
        let lost = lost.unwrap_err().to_string();
        assert!(lost.ends_with(": node lost"), "{lost}");
    }
    must(other.release().await);
}

/// A permit and its note.
#[tokio::test]
async fn a_permit_is_released_with_a_reason() {
    let db = test_db().await;
    let permit = must(provider(&db).await.semaphore("s", 2).acquire().await);
    let number = permit.number().to_string();
    let release = ["release", "s", "--permit", &number, "--yes", "--reason", "stuck"];
    let (code, out, _) = output(mongolock(&db, &release));
    assert_eq!(code, Some(0));
    assert!(!out.contains("not noted"), "{out}");
    let lost = permit.release().await.unwrap_err().to_string();
    assert!(
        lost.contains("released by force by") && lost.ends_with(": stuck"),
        "{lost}"
    );
}

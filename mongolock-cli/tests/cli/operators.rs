//! `ls`, `show` and `release`, and how the connection is named.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::LockState;
use mongolock_tests::{AMPLE, TestDb, eventually, locks, must, test_db};
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Running, mongolock, output, provider, send};

fn json(db: &TestDb, arguments: &[&str]) -> Vec<Value> {
    let (code, out, said) = output(mongolock(db, &[arguments, &["--json"]].concat()));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    out.lines().map(|line| must(serde_json::from_str(line))).collect()
}

fn names(locks: &[Value]) -> Vec<&str> {
    locks.iter().filter_map(|lock| lock["name"].as_str()).collect()
}

#[tokio::test]
async fn ls_lists_what_is_asked_for() {
    let db = test_db().await;
    let provider = must(provider(&db).await.to_builder().owner("anna").build());
    let other = must(provider.to_builder().owner("bert").build());
    let held = must(provider.lock("a:held").acquire().await);
    must(must(other.lock("a:released").acquire().await).release().await);
    let day = std::time::Duration::from_secs(7 * 24 * 60 * 60);
    must(
        must(other.lock("b:done").once_per(day).acquire().await)
            .done()
            .await,
    );
    let permit = must(other.semaphore("b:permits", 3).acquire().await);
    // An older document would be removed by the TTL index.
    let past = DateTime::from_millis(DateTime::now().timestamp_millis() - 60_000);
    let expired = doc! { "_id": "c:expired", "lockId": "carl#1", "acquiredAt": past, "expiresAt": past,
    "fencingToken": 5_i64 };
    must(locks(db.database()).insert_one(expired).await);

    let all = json(&db, &["ls"]);
    assert_eq!(
        names(&all),
        ["a:held", "a:released", "b:done", "b:permits", "c:expired"]
    );
    let states: Vec<&str> = all.iter().filter_map(|lock| lock["state"].as_str()).collect();
    assert_eq!(states, ["held", "released", "done", "held", "expired"]);
    assert_eq!(all[3]["permit"], permit.number());
    assert!(
        all[3].get("fencing_token").is_none(),
        "a permit has no token: {}",
        all[3]
    );
    assert_eq!(names(&json(&db, &["ls", "a:"])), ["a:held", "a:released"]);
    assert_eq!(names(&json(&db, &["ls", "--held"])), ["a:held", "b:permits"]);
    assert_eq!(names(&json(&db, &["ls", "--expired"])), ["c:expired"]);
    assert_eq!(names(&json(&db, &["ls", "--done"])), ["b:done"]);
    assert_eq!(names(&json(&db, &["ls", "--owner", "anna"])), ["a:held"]);

    must(held.release().await);
    let (_, text, _) = output(mongolock(&db, &["ls"]));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 6, "{text}");
    assert!(
        rows[0].starts_with("NAME ") && rows[4].starts_with(&format!("b:permits #{} ", permit.number())),
        "{text}"
    );
}

/// The fields that the help of `ls` lists, with their types.
#[tokio::test]
async fn the_fields_of_json_are_stable() {
    let db = test_db().await;
    let provider = must(provider(&db).await.to_builder().owner("anna").build());
    let guard = must(provider.lock("a").acquire().await);
    let [lock] = &json(&db, &["show", "a"])[..] else {
        panic!("one line");
    };
    let object = lock.as_object().expect("it is an object");
    let mut fields: Vec<&str> = object.keys().map(String::as_str).collect();
    fields.sort_unstable();
    let wanted = [
        "acquired_at",
        "expires_at",
        "fencing_token",
        "held_ms",
        "name",
        "owner",
        "remaining_ms",
        "state",
    ];
    assert_eq!(fields, wanted);
    assert_eq!(lock["fencing_token"], guard.fencing_token().get());
    assert!(
        lock["remaining_ms"]
            .as_u64()
            .is_some_and(|left| (1..=30_000).contains(&left)),
        "{lock}"
    );
    assert!(
        lock["held_ms"].as_u64().is_some_and(|held| held < 30_000),
        "{lock}"
    );
    let acquired = lock["acquired_at"].as_str().unwrap_or_default();
    assert!(DateTime::parse_rfc3339_str(acquired).is_ok(), "{lock}");
    let (_, help, _) = output(mongolock(&db, &["ls", "--help"]));
    for field in fields {
        assert!(help.contains(field), "{field} is not in the help");
    }
}

#[tokio::test]
async fn damaged_documents_are_lines_and_names_are_escaped() {
    let db = test_db().await;
    let collection = locks(db.database());
    must(collection.insert_one(doc! { "_id": "b", "lockId": 7 }).await);
    let past = DateTime::from_millis(1_700_000_000_000);
    for name in ["a\x1b[2J\u{9b}", "c"] {
        let lock = doc! { "_id": name, "lockId": "x#1", "acquiredAt": past, "expiresAt": past, "fencingToken": 5_i64 };
        must(collection.insert_one(lock).await);
    }
    let (code, text, _) = output(mongolock(&db, &["ls"]));
    assert_eq!(code, Some(0));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(rows[1].starts_with(r"a\u{1b}[2J\u{9b} "), "{text}");
    assert!(
        rows[2].starts_with("b ") && rows[2].contains("  damaged "),
        "{text}"
    );
    let lines = json(&db, &["ls"]);
    assert_eq!(lines[0]["name"], "a\x1b[2J\u{9b}");
    assert_eq!(lines[1]["state"], "damaged");
    assert!(lines[1]["problem"].is_string());
    let (_, raw, _) = output(mongolock(&db, &["ls", "--json"]));
    assert!(!raw.contains(['\x1b', '\u{9b}']), "{raw}");
}

/// A list of 100,000 locks takes no more memory than one of 1,000, and ends when nobody reads it.
#[tokio::test]
async fn a_long_list_is_streamed() {
    const LOCKS: usize = 100_000;
    let db = test_db().await;
    let collection = locks(db.database());
    let past = DateTime::from_millis(1_700_000_000_000);
    for chunk in 0..LOCKS / 10_000 {
        let many = (0..10_000).map(|number| {
            doc! { "_id": format!("job:{:06}", chunk * 10_000 + number), "lockId": "x#1", "acquiredAt": past,
            "expiresAt": past, "fencingToken": Bson::Int64(5) }
        });
        must(
            collection
                .insert_many(many.collect::<Vec<Document>>())
                .ordered(false)
                .await,
        );
    }
    let mut ls = mongolock(&db, &["ls", "--json"]);
    let mut child = must(ls.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let memory = || {
        let status = must(fs::read_to_string(format!("/proc/{}/status", child.id())));
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak
            .and_then(|text| text.trim().strip_suffix(" kB"))
            .expect("Linux tells it");
        must(kilobytes.parse::<u64>())
    };
    let early = lines.by_ref().take(3_000).count();
    let at_first = memory();
    let late = lines.by_ref().take(LOCKS - early - 1_000).count();
    let at_last = memory();
    let rest = lines.count();
    assert_eq!(early + late + rest, LOCKS);
    assert!(must(child.wait()).success());
    // All of the locks together would be more than 20 MB.
    assert!(at_last < at_first + 8_000, "{at_first} kB, later {at_last} kB");

    let mut ls = mongolock(&db, &["ls"]);
    let mut child = must(ls.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    must(out.read_line(&mut String::new()));
    drop(out);
    let ended = must(child.wait_with_output());
    assert_eq!(
        (ended.status.code(), ended.stderr.len()),
        (Some(0), 0),
        "{ended:?}"
    );
}

#[tokio::test]
async fn show_tells_all_of_a_lock() {
    let db = test_db().await;
    let provider = must(provider(&db).await.to_builder().owner("anna").build());
    let guard = must(provider.lock("a").acquire().await);
    let permits = [
        must(provider.semaphore("s", 3).acquire().await),
        must(provider.semaphore("s", 3).acquire().await),
    ];
    let (code, text, _) = output(mongolock(&db, &["show", "a"]));
    assert_eq!(code, Some(0));
    for part in [
        "a\n",
        "held",
        "holder     anna",
        "remaining",
        &guard.fencing_token().to_string(),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text, _) = output(mongolock(&db, &["show", "s"]));
    for permit in permits {
        assert!(text.contains(&format!("s #{}\n", permit.number())), "{text}");
    }
    assert!(!text.contains("token"), "a permit has none: {text}");
    let (code, out, said) = output(mongolock(&db, &["show", "b"]));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(said.contains("there is no lock `b`"), "{said}");
}

#[tokio::test]
async fn release_ends_what_it_names() {
    let db = test_db().await;
    // A holder learns with its next renewal, a third of the expiry later, that its hold was ended.
    let anna = provider(&db).await.to_builder().owner("anna");
    let provider = must(anna.expiry(Duration::from_secs(6)).build());
    let code = |arguments: &[&str]| {
        let (code, out, said) = output(mongolock(&db, &[&["release", "--yes"], arguments].concat()));
        (code.unwrap_or(-1), format!("{out}{said}"))
    };
    let stuck = must(provider.lock("a").acquire().await);
    let token = stuck.fencing_token().to_string();
    let (refused, said) = code(&["a", "--token", "17"]);
    assert!(
        refused == 1 && said.contains("has another token"),
        "{refused} {said}"
    );
    let (refused, said) = code(&["a", "--done"]);
    assert!(
        refused == 1 && said.contains("nothing released: `a` has no mark of finished work: it is held"),
        "{refused} {said}"
    );
    let (released, said) = code(&["a", "--token", &token, "--wait"]);
    assert!(
        released == 0 && said.ends_with("next renewal\na: nobody holds it\n"),
        "{released} {said}"
    );
    stuck.lost().await;
    let (again, said) = code(&["a"]);
    assert!(
        again == 1 && said.contains("nothing released: `a` is released"),
        "{again} {said}"
    );
    let place = format!("in {}.distributed_locks", db.name());
    let (none, said) = code(&["nothing"]);
    assert!(
        none == 1 && said.contains(&format!("nothing released: there is no lock `nothing` {place}")),
        "{none} {said}"
    );
    let (none, said) = code(&["nothing", "--permit", "2"]);
    assert!(
        none == 1 && said.contains(&format!("nothing released: `nothing` has no permit 2 {place}")),
        "{none} {said}"
    );

    let permits = [
        must(provider.semaphore("s", 3).acquire().await),
        must(provider.semaphore("s", 3).acquire().await),
    ];
    let (refused, said) = code(&["s"]);
    assert!(
        refused == 1 && said.contains("is a semaphore"),
        "{refused} {said}"
    );
    assert_eq!(code(&["s", "--permit", &permits[0].number().to_string()]).0, 0);
    permits[0].lost().await;
    assert!(!permits[1].is_lost());
    assert_eq!(code(&["s", "--all"]).0, 0);
    permits[1].lost().await;
    let (none, said) = code(&["s", "--all"]);
    assert!(
        none == 1 && said.contains("nothing released: no permit of `s` is held"),
        "{none} {said}"
    );

    let day = std::time::Duration::from_secs(7 * 24 * 60 * 60);
    must(
        must(provider.lock("d").once_per(day).acquire().await)
            .done()
            .await,
    );
    let (refused, said) = code(&["d"]);
    assert!(refused == 1 && said.contains("--done"), "{refused} {said}");
    assert_eq!(code(&["d", "--done"]).0, 0);
    assert!(
        provider
            .lock("d")
            .once_per(day)
            .try_acquire()
            .await
            .is_ok_and(|guard| guard.is_some())
    );

    let several = [
        must(provider.lock("x").acquire().await),
        must(provider.lock("y").acquire().await),
    ];
    assert_eq!(code(&["--owner", "anna"]).0, 0);
    for guard in several {
        guard.lost().await;
    }
    let (none, said) = code(&["--owner", "anna"]);
    assert!(
        none == 1 && said.contains(&format!("nothing released: the owner anna holds no lock {place}")),
        "{none} {said}"
    );
    assert_eq!(code(&["a", "--owner", "anna"]).0, 2);
    assert_eq!(code(&[]).0, 2);
}

/// What a clock that was ahead has left, and damaged documents: the program releases each of them by its name.
#[tokio::test]
async fn release_ends_what_begins_in_the_future_or_is_damaged() {
    let db = test_db().await;
    let hour = 3_600_000;
    let at = |ahead: i64| DateTime::from_millis(DateTime::now().timestamp_millis() + ahead);
    let uuid = "0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11";
    let lock = |id: &str, lock_id: &str| {
        doc! { "_id": id, "lockId": format!("{lock_id}{uuid}"), "acquiredAt": at(hour), "expiresAt": at(2 * hour),
        "fencingToken": 17_i64 }
    };
    let damaged = |id: &str, lock_id: &str, field: &str, value: Bson| {
        let mut lock = lock(id, lock_id);
        lock.insert(field, value);
        lock
    };
    let documents = [
        lock("held", "anna#"),
        lock("foreign", ""),
        lock("kept", "kept:anna#"),
        lock("mark", "done:anna#"),
        lock("s\u{1f}0", "anna#"),
        lock("s\u{1f}1", "anna#"),
        damaged("s\u{1f}2", "anna#", "fencingToken", 1.5.into()),
        damaged("t\u{1f}4", "anna#", "lockId", Bson::Null),
        lock("of owner", "bert#"),
        lock("kept of owner", "kept:bert#"),
        damaged("id", "anna#", "lockId", doc! { "$gt": 1 }.into()),
        damaged("begin", "anna#", "acquiredAt", "then".into()),
        damaged("end", "anna#", "expiresAt", Bson::MaxKey),
        damaged("token", "anna#", "fencingToken", "17".into()),
        damaged("bad mark", "done:anna#", "fencingToken", 7.into()),
        doc! { "_id": "bare" },
    ];
    let ids = documents
        .clone()
        .map(|document| document.get_str("_id").unwrap_or_default().to_owned());
    must(locks(db.database()).insert_many(documents).await);
    let code = |arguments: &[&str]| {
        let (code, out, said) = output(mongolock(&db, &[&["release", "--yes"], arguments].concat()));
        (code.unwrap_or(-1), format!("{out}{said}"))
    };
    for arguments in [
        &["held"][..],
        &["foreign", "--token", "17"],
        &["kept"],
        &["mark", "--done"],
        &["s", "--permit", "1"],
        &["s", "--all"],
        &["t", "--permit", "4"],
        &["id", "--token", "17"],
        &["begin"],
        &["end"],
        &["token"],
        &["bad mark", "--done"],
        &["bare"],
        &["--owner", "bert"],
    ] {
        if arguments.contains(&"--done") {
            let (refused, said) = code(&arguments[..1]);
            assert_ne!(refused, 0, "a mark needs --done: {said}");
        }
        let (released, said) = code(arguments);
        assert_eq!(released, 0, "{arguments:?}: {said}");
        assert_ne!(code(arguments).0, 0, "{arguments:?} is free");
    }
    let all = json(&db, &["ls"]);
    assert_eq!(all.len(), ids.len());
    for line in &all {
        assert_eq!(line["state"], "released", "{line}");
    }
    for id in ids {
        let document = must(locks(db.database()).find_one(doc! { "_id": &id }).await);
        let document = document.expect("a release keeps it");
        assert_eq!(document.get_str("lockId"), Ok(""), "{document}");
        assert!(
            document.get_datetime("expiresAt").is_ok_and(|end| *end <= at(0)),
            "{document}"
        );
    }
}

/// In a pipe and in a script nobody can answer.
#[tokio::test]
async fn release_needs_a_terminal_or_yes() {
    let db = test_db().await;
    let provider = must(provider(&db).await.to_builder().owner("anna").build());
    let _guard = must(provider.lock("a").acquire().await);
    let permit = must(provider.semaphore("s", 2).acquire().await);
    let number = permit.number().to_string();
    for arguments in [
        &["release", "a"][..],
        &["release", "s", "--permit", &number],
        &["release", "s", "--all"],
        &["release", "--owner", "anna"],
    ] {
        let (code, _, said) = output(mongolock(&db, arguments));
        assert!(
            code == Some(125) && said.contains("cannot ask") && said.contains("--yes"),
            "{arguments:?}: {said}"
        );
    }
    assert_eq!(
        names(&json(&db, &["ls", "--held"])),
        ["a", "s"],
        "nothing was released"
    );
}

#[tokio::test]
async fn a_password_is_refused_on_the_command_line_and_never_shown() {
    let db = test_db().await;
    let secret = "mongodb://anna:S3cr3t@127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let (code, out, said) = output(mongolock(&db, &["ls", "--uri", secret]));
    assert!(code == Some(125) && said.contains("--uri-file"), "{said}");
    assert!(!format!("{out}{said}").contains("S3cr3t"));

    let mut from_environment = mongolock(&db, &["ls"]);
    from_environment.env("MONGODB_URI", secret);
    let (code, out, said) = output(from_environment);
    assert_eq!(code, Some(125));
    assert!(!format!("{out}{said}").contains("S3cr3t"), "{out}{said}");

    let directory = must(tempfile::tempdir());
    let file = directory.path().join("uri");
    must(fs::write(&file, format!("{}\n", db.uri())));
    let mut from_file = mongolock(&db, &["ls", "--uri-file", &file.to_string_lossy()]);
    from_file.env_remove("MONGODB_URI");
    assert_eq!(output(from_file).0, Some(0));
    let mut from_option = mongolock(&db, &["--uri", db.uri(), "ls"]);
    from_option.env_remove("MONGODB_URI");
    assert_eq!(output(from_option).0, Some(0));
    let mut none = mongolock(&db, &["ls"]);
    none.env_remove("MONGODB_URI");
    let (code, _, said) = output(none);
    assert!(code == Some(125) && said.contains("MONGODB_URI"), "{said}");
}

/// A person who waits for an answer has it after 5 s, and sees addresses and reasons instead of all that the driver knows.
#[tokio::test]
async fn a_server_that_is_missed_is_named_soon_and_shortly() {
    let db = test_db().await;
    let at = |uri: &str, arguments: &[&str]| {
        let mut command = mongolock(&db, arguments);
        command.env("MONGODB_URI", uri);
        command
    };
    let begun = Instant::now();
    let mut patient = at("mongodb://127.0.0.1:1/", &["ls"]);
    let patient = must(patient.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());

    for command in [
        &["ls"][..],
        &["show", "a"],
        &["release", "a", "--yes"],
        &["watch"],
        &["doctor"],
    ] {
        let uri = "mongodb://127.0.0.1:1,127.0.0.1:2/?serverSelectionTimeoutMS=100";
        let (code, out, said) = output(at(uri, command));
        let wanted = if command == ["doctor"] { 1 } else { 125 };
        assert_eq!(code, Some(wanted), "{command:?}");
        assert!(out.is_empty() || command == ["doctor"], "no heading: {out}");
        for address in ["127.0.0.1:1", "127.0.0.1:2"] {
            let named = format!("{address} (Connection refused)");
            assert!(
                format!("{out}{said}").contains(&named),
                "{command:?}: {out}{said}"
            );
        }
        assert!(!format!("{out}{said}").contains("Topology"), "{out}{said}");
    }
    let (hosts, _) = db.uri().split_once("/?").expect("it has options");
    let uri = format!("{hosts}/?replicaSet=other&serverSelectionTimeoutMS=500");
    let (_, _, said) = output(at(&uri, &["ls"]));
    let names = "belongs to the replica set `mongolock`; the connection string names `other`";
    assert!(said.contains(names), "{said}");

    let ended = must(patient.wait_with_output());
    assert_eq!(ended.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("127.0.0.1:1"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn completions_name_the_commands() {
    let db = test_db().await;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = output(mongolock(&db, &["completions", shell]));
        assert_eq!(code, Some(0));
        assert!(
            script.contains("release") && script.contains("once-per"),
            "{shell}"
        );
        assert!(
            !script.contains("guard-command"),
            "{shell}: hidden commands stay hidden"
        );
    }
}

/// For `run` a `--` begins its command, so that it has an option for such a name; elsewhere the name stands behind `--`.
#[tokio::test]
async fn a_name_may_begin_with_a_dash() {
    let db = test_db().await;
    let provider = provider(&db).await;
    let ran = |arguments: &[&str]| output(mongolock(&db, arguments));
    let (code, _, said) = ran(&["run", "-x", "--", "true"]);
    assert!(code == Some(125) && said.contains("write --name=NAME"), "{said}");
    let show = r#"test "$MONGOLOCK_NAME" = "$0""#;
    for (arguments, names) in [(&["--name=-x"][..], "-x"), (&["a", "--name=--y"], "a,--y")] {
        let (code, _, said) = ran(&[&["run"], arguments, &["--", "sh", "-c", show, names]].concat());
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(
        ran(&["run", "--name=-x", "--once-per", "1d", "--", "true"]).0,
        Some(0)
    );
    let (code, _, said) = ran(&["run", "--name=-x", "--no-wait", "--", "true"]);
    assert_eq!(code, Some(75), "{said}");
    assert!(
        said.contains("`mongolock release --done ") && said.contains(" -- -x` clears the mark"),
        "{said}"
    );
    assert_eq!(ran(&["release", "--yes", "--done", "--", "-x"]).0, Some(0));
    let info = must(provider.admin().get("-x").await).expect("it was used");
    assert_eq!(info.state, LockState::Released);
    for command in [
        &["show", "--", "-x"][..],
        &["hold", "--for", "1m", "--", "-x"],
        &["release", "--yes", "--", "-x"],
    ] {
        assert_eq!(ran(command).0, Some(0), "{command:?}");
    }
}

/// A holder renews after a third of its expiry; a process that has died does not.
#[tokio::test]
async fn a_holder_that_no_longer_renews_is_told_from_one_that_does() {
    let db = test_db().await;
    let holds = |name: &str| {
        let mut command = mongolock(&db, &["run", name, "--expiry", "24s", "--", "sleep", "100"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Running::start(command)
    };
    let (alive, dead) = (holds("alive"), holds("dead"));
    let provider = provider(&db).await;
    for name in ["alive", "dead"] {
        let held =
            || async { must(provider.admin().get(name).await).filter(|info| info.state == LockState::Held) };
        must(eventually(AMPLE, "a lock that is held", held).await);
    }
    let guardian = dead.guardian().await;
    dead.signal(Signal::STOP);
    let seen = |command: &[&str]| output(mongolock(&db, command)).1;
    let told = || async { seen(&["ls"]).contains("no renewal for ").then_some(()) };
    must(eventually(AMPLE, "a lease without renewals", told).await);
    let list = seen(&["ls"]);
    let line = |name: &str| {
        list.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(
        line("dead").contains("  no renewal for ") && line("alive").contains("  held  "),
        "{list}"
    );
    assert!(
        seen(&["show", "dead"]).contains("renewal    no renewal for "),
        "{}",
        seen(&["show", "dead"])
    );
    assert!(!seen(&["show", "alive"]).contains("no renewal"));
    send(guardian, Signal::KILL);
    drop((alive, dead));
}

#[tokio::test]
async fn a_database_that_is_spelt_otherwise_is_said() {
    let db = test_db().await;
    assert_eq!(output(mongolock(&db, &["run", "a", "--", "true"])).0, Some(0));
    let other = db.name().to_uppercase();
    let ran = |command: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_mongolock"));
        program
            .args(command.split(' '))
            .args(["--database", &other])
            .env("MONGODB_URI", db.uri());
        output(program)
    };
    let (code, _, said) = ran("ls");
    let spelt = format!("there is a database `{}`, which is spelt otherwise", db.name());
    assert!(code == Some(0) && said.contains(&spelt), "{said}");
    let (code, out, _) = ran("doctor");
    assert!(code == Some(1) && out.contains("WRONG    database"), "{out}");
    let (code, _, said) = ran("hold b --for 1m");
    assert_eq!(code, Some(125), "{said}");
    assert!(
        said.contains("DatabaseDifferCase") && said.contains("help: Write the name of the database"),
        "{said}"
    );
}

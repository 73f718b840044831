//! `ls`, `show` and `release`, and how the connection is named.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::LockState;
use mongolock_tests::{AMPLE, TestDb, eventually, locks, must, test_db, until};
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{Running, at, ends, mongolock, output, owner, provider, send};

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
    let provider = owner(&db, "anna").await;
    let other = must(provider.to_builder().owner("bert").build());
    let held = must(provider.lock("a:held").acquire().await);
    must(must(other.lock("a:released").acquire().await).release().await);
    let once = other.lock("b:done").once();
    must(must(once.acquire().await).done().await);
    let permit = must(other.semaphore("b:permits", 3).acquire().await);
    // An older document would be removed by the TTL index.
    let past = DateTime::from_millis(DateTime::now().timestamp_millis() - 60_000);
    let expired = doc! { "_id": "c:expired", "lockId": "carl#1", "acquiredAt": past, "expiresAt": past,
    "fencingToken": 5_i64 };
    must(locks(db.database()).insert_one(expired).await);

    let all = json(&db, &["ls"]);
    let states: Vec<&str> = all.iter().filter_map(|lock| lock["state"].as_str()).collect();
    assert_eq!(states, ["held", "released", "done", "held", "expired"]);
    assert_eq!(all[3]["permit"], permit.number());
    for (arguments, wanted) in [
        (&["ls"][..], "a:held a:released b:done b:permits c:expired"),
        (&["ls", "a:"], "a:held a:released"),
        (&["ls", "--held"], "a:held b:permits"),
        (&["ls", "--expired"], "c:expired"),
        (&["ls", "--done"], "b:done"),
        (&["ls", "--owner", "anna"], "a:held"),
    ] {
        assert_eq!(names(&json(&db, arguments)).join(" "), wanted, "{arguments:?}");
    }

    must(held.release().await);
    let (_, text, _) = output(mongolock(&db, &["ls"]));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 6, "{text}");
    let shown = format!("b:permits #{} ", permit.number());
    let is_list = rows[0].starts_with("NAME ") && rows[4].starts_with(&shown);
    assert!(is_list, "{text}");
}

/// The fields that the help of `ls` lists, with their types.
#[tokio::test]
async fn the_fields_of_json_are_stable() {
    let db = test_db().await;
    let provider = owner(&db, "anna").await;
    let guard = must(provider.lock("a").acquire().await);
    let [lock] = &json(&db, &["show", "a"])[..] else {
        panic!("one line");
    };
    let object = lock.as_object().expect("it is an object");
    let mut fields: Vec<&str> = object.keys().map(String::as_str).collect();
    fields.sort_unstable();
    let wanted = "acquired_at expires_at fencing_token held_ms name owner remaining_ms state";
    assert_eq!(fields.join(" "), wanted);
    assert_eq!(lock["fencing_token"], guard.fencing_token().get());
    for field in ["remaining_ms", "held_ms"] {
        let millis = lock[field].as_u64();
        assert!(millis.is_some_and(|millis| millis <= 30_000), "{lock}");
    }
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
    assert!(rows[2].starts_with("b "), "{text}");
    assert!(rows[2].contains("  damaged "), "{text}");
    let lines = json(&db, &["ls"]);
    assert_eq!(lines[0]["name"], "a\x1b[2J\u{9b}");
    assert_eq!(lines[1]["state"], "damaged");
    assert!(lines[1]["problem"].is_string());
    let (_, raw, _) = output(mongolock(&db, &["ls", "--json"]));
    assert!(!raw.contains(['\x1b', '\u{9b}']), "{raw}");
}

/// A list of 50,000 locks takes no more memory than one of 1,000, and ends when nobody reads it.
#[tokio::test]
async fn a_long_list_is_streamed() {
    const LOCKS: usize = 50_000;
    let db = test_db().await;
    let collection = locks(db.database());
    let past = DateTime::from_millis(1_700_000_000_000);
    for chunk in 0..LOCKS / 10_000 {
        let many = (0..10_000).map(|number| {
            doc! { "_id": format!("job:{:06}", chunk * 10_000 + number), "lockId": "x#1", "acquiredAt": past,
            "expiresAt": past, "fencingToken": Bson::Int64(5) }
        });
        let many: Vec<Document> = many.collect();
        must(collection.insert_many(many).ordered(false).await);
    }
    let mut ls = mongolock(&db, &["ls", "--json"]);
    let mut child = must(ls.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let memory = || {
        let status = must(fs::read_to_string(format!("/proc/{}/status", child.id())));
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|text| text.trim().strip_suffix(" kB"));
        must(kilobytes.expect("Linux tells it").parse::<u64>())
    };
    let early = lines.by_ref().take(3_000).count();
    let at_first = memory();
    let late = lines.by_ref().take(LOCKS - early - 1_000).count();
    let at_last = memory();
    let rest = lines.count();
    assert_eq!(early + late + rest, LOCKS);
    assert!(must(child.wait()).success());
    // All of the locks together would be more than 10 MB.
    assert!(at_last < at_first + 5_000, "{at_first} kB, later {at_last} kB");

    let mut ls = mongolock(&db, &["ls"]);
    let mut child = must(ls.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    must(out.read_line(&mut String::new()));
    drop(out);
    let ended = must(child.wait_with_output());
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

/// Runs `release --yes` with these arguments, which ends with this code and has said these words.
#[track_caller]
fn release(db: &TestDb, arguments: &[&str], wanted: i32, words: &str) {
    let release = mongolock(db, &[&["release", "--yes"], arguments].concat());
    ends(release, wanted, words);
}

#[tokio::test]
async fn release_ends_what_it_names() {
    let db = test_db().await;
    // A holder learns with its next renewal, a third of the expiry later, that its hold was ended.
    let anna = provider(&db).await.to_builder().owner("anna");
    let provider = must(anna.expiry(Duration::from_secs(6)).build());
    let place = format!("in {}.distributed_locks", db.name());
    let none = |what: &str| format!("nothing released: {what} {place}");
    let stuck = must(provider.lock("a").acquire().await);
    let token = stuck.fencing_token().to_string();
    release(&db, &["a", "--token", "17"], 1, "has another token");
    let unmarked = "nothing released: `a` has no mark of finished work: it is held";
    release(&db, &["a", "--done"], 1, unmarked);
    let ended = "next renewal\na: nobody holds it\n";
    release(&db, &["a", "--token", &token, "--wait"], 0, ended);
    stuck.lost().await;
    release(&db, &["a"], 1, "nothing released: `a` is released");
    release(&db, &["nothing"], 1, &none("there is no lock `nothing`"));
    let permit = ["nothing", "--permit", "2"];
    release(&db, &permit, 1, &none("`nothing` has no permit 2"));

    let semaphore = provider.semaphore("s", 3);
    let permits = [must(semaphore.acquire().await), must(semaphore.acquire().await)];
    release(&db, &["s"], 1, "is a semaphore");
    let number = permits[0].number().to_string();
    release(&db, &["s", "--permit", &number], 0, "");
    permits[0].lost().await;
    assert!(!permits[1].is_lost());
    release(&db, &["s", "--all"], 0, "");
    permits[1].lost().await;
    let none_held = "nothing released: no permit of `s` is held";
    release(&db, &["s", "--all"], 1, none_held);

    let once = provider.lock("d").once();
    must(must(once.acquire().await).done().await);
    release(&db, &["d"], 1, "--done");
    release(&db, &["d", "--done"], 0, "");
    assert!(must(once.try_acquire().await).is_some());

    let (x, y) = (provider.lock("x"), provider.lock("y"));
    let several = [must(x.acquire().await), must(y.acquire().await)];
    release(&db, &["--owner", "anna"], 0, "");
    for guard in several {
        guard.lost().await;
    }
    let nothing = none("the owner anna holds no lock");
    release(&db, &["--owner", "anna"], 1, &nothing);
    release(&db, &["a", "--owner", "anna"], 2, "");
    release(&db, &[], 2, "");
}

/// In a pipe and in a script nobody can answer.
#[tokio::test]
async fn release_needs_a_terminal_or_yes() {
    let db = test_db().await;
    let provider = owner(&db, "anna").await;
    let _guard = must(provider.lock("a").acquire().await);
    let permit = must(provider.semaphore("s", 2).acquire().await);
    let number = permit.number().to_string();
    for arguments in [
        &["release", "a"][..],
        &["release", "s", "--permit", &number],
        &["release", "s", "--all"],
        &["release", "--owner", "anna"],
    ] {
        let said = ends(mongolock(&db, arguments), 125, "cannot ask");
        assert!(said.contains("--yes"), "{arguments:?}: {said}");
    }
    // Nothing was released.
    assert_eq!(names(&json(&db, &["ls", "--held"])), ["a", "s"]);
}

#[tokio::test]
async fn a_password_is_refused_on_the_command_line_and_never_shown() {
    let db = test_db().await;
    let secret = "mongodb://anna:S3cr3t@127.0.0.1:1/?serverSelectionTimeoutMS=200";
    let given = mongolock(&db, &["ls", "--uri", secret]);
    for (command, part) in [(given, "--uri-file"), (at(secret, &db, &["ls"]), "127.0.0.1:1")] {
        let said = ends(command, 125, part);
        assert!(!said.contains("S3cr3t"), "{said}");
    }
    let directory = must(tempfile::tempdir());
    let file = directory.path().join("uri");
    must(fs::write(&file, format!("{}\n", db.uri())));
    let without = |arguments: &[&str]| {
        let mut command = mongolock(&db, arguments);
        command.env_remove("MONGODB_URI");
        command
    };
    ends(without(&["ls", "--uri-file", &file.to_string_lossy()]), 0, "");
    // Standard input can be read once.
    let mut from_input = without(&["doctor", "--uri-file", "-"]);
    from_input.stdin(must(fs::File::open(&file)));
    let (_, out, said) = output(from_input);
    assert!(out.starts_with("ok       connection"), "{out} {said}");
    ends(without(&["--uri", db.uri(), "ls"]), 0, "");
    ends(without(&["ls"]), 125, "MONGODB_URI");
}

/// A person who waits for an answer has it after 5 s, and sees addresses and reasons instead of all that the driver knows.
#[tokio::test]
async fn a_server_that_is_missed_is_named_soon_and_shortly() {
    let db = test_db().await;
    let begun = Instant::now();
    let mut patient = at("mongodb://127.0.0.1:1/", &db, &["ls"]);
    let patient = must(patient.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());

    for command in [
        &["ls"][..],
        &["show", "a"],
        &["release", "a", "--yes"],
        &["watch"],
        &["doctor"],
    ] {
        let uri = "mongodb://127.0.0.1:1,127.0.0.1:2/?serverSelectionTimeoutMS=100";
        let (code, out, said) = output(at(uri, &db, command));
        let wanted = if command == ["doctor"] { 1 } else { 125 };
        assert_eq!(code, Some(wanted), "{command:?}");
        assert!(out.is_empty() || command == ["doctor"], "no heading: {out}");
        let all = format!("{out}{said}");
        for address in ["127.0.0.1:1", "127.0.0.1:2"] {
            let named = format!("{address} (Connection refused)");
            assert!(all.contains(&named), "{command:?}: {all}");
        }
        assert!(!all.contains("Topology"), "{all}");
    }
    let (hosts, _) = db.uri().split_once("/?").expect("it has options");
    let uri = format!("{hosts}/?replicaSet=other&serverSelectionTimeoutMS=500");
    let names = "belongs to the replica set `mongolock`; the connection string names `other`";
    ends(at(&uri, &db, &["ls"]), 125, names);

    let ended = must(patient.wait_with_output());
    assert_eq!(ended.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("127.0.0.1:1"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// For `run` a `--` begins its command, so that it has an option for such a name; elsewhere the name stands behind `--`.
#[tokio::test]
async fn a_name_may_begin_with_a_dash() {
    let db = test_db().await;
    let provider = provider(&db).await;
    let ran = |arguments: &[&str], code: i32, words: &str| ends(mongolock(&db, arguments), code, words);
    ran(&["run", "-x", "--", "true"], 125, "write --name=NAME");
    let show = r#"test "$MONGOLOCK_NAME" = "$0""#;
    for (arguments, names) in [(&["--name=-x"][..], "-x"), (&["a", "--name=--y"], "a,--y")] {
        let run = [&["run"], arguments, &["--", "sh", "-c", show, names]].concat();
        ran(&run, 0, "");
    }
    ran(&["run", "--name=-x", "--once-per", "1d", "--", "true"], 0, "");
    let marked = ["run", "--name=-x", "--no-wait", "--", "true"];
    let said = ran(&marked, 75, "`mongolock release --done ");
    assert!(said.contains(" -- -x` clears the mark"), "{said}");
    ran(&["release", "--yes", "--done", "--", "-x"], 0, "");
    let info = must(provider.admin().get("-x").await).expect("it was used");
    assert_eq!(info.state, LockState::Released);
    for command in [
        &["show", "--", "-x"][..],
        &["hold", "--for", "1m", "--", "-x"],
        &["release", "--yes", "--", "-x"],
    ] {
        ran(command, 0, "");
    }
}

/// A holder renews after a third of its expiry; a process that has died does not.
#[tokio::test]
async fn a_holder_that_no_longer_renews_is_told_from_one_that_does() {
    let db = test_db().await;
    let holds = |name: &str| {
        let mut command = mongolock(&db, &["run", name, "--expiry", "12s", "--", "sleep", "100"]);
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
    until("a lease without renewals", async || {
        seen(&["ls"]).contains("no renewal for ")
    })
    .await;
    let list = seen(&["ls"]);
    for (name, state) in [("dead", "  no renewal for "), ("alive", "  held  ")] {
        let line = list.lines().find(|line| line.starts_with(name));
        assert!(line.is_some_and(|line| line.contains(state)), "{list}");
    }
    let shown = seen(&["show", "dead"]);
    assert!(shown.contains("renewal    no renewal for "), "{shown}");
    assert!(!seen(&["show", "alive"]).contains("no renewal"));
    send(guardian, Signal::KILL);
    drop((alive, dead));
}

#[tokio::test]
async fn a_database_that_is_spelt_otherwise_is_said() {
    let db = test_db().await;
    ends(mongolock(&db, &["run", "a", "--", "true"]), 0, "");
    let other = db.name().to_uppercase();
    let ran = |command: &str, code: i32, words: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_mongolock"));
        program.args(command.split(' ')).args(["--database", &other]);
        program.env("MONGODB_URI", db.uri());
        ends(program, code, words)
    };
    let spelt = format!("there is a database `{}`, which is spelt otherwise", db.name());
    ran("ls", 0, &spelt);
    ran("doctor", 1, "WRONG    database");
    let said = ran("hold b --for 1m", 125, "DatabaseDifferCase");
    assert!(said.contains("help: Write the name of the database"), "{said}");
}

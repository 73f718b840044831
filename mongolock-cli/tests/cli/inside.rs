//! Commands that ask for a lock which is held around them.

use std::process::Command;
use std::time::{Duration, Instant};

use mongolock_tests::{TestDb, must, test_db, until};
use tokio::task::JoinSet;

use crate::fixture::{ends, mongolock, output, owner, provider};

/// What a command says of a lock that it would wait for in vain.
const AROUND: &str = "is held by the command around this one";

/// The limit of a wait that must not be used up.
const WAIT: Duration = Duration::from_secs(60);

/// The program under a lock, whose command is a script that can call `ml` with a command line of the program.
fn around(db: &TestDb, line: &str, script: &str) -> Command {
    let arguments: Vec<&str> = line.split(' ').collect();
    let script = format!("ml() {{ \"$ML\" --database \"$DB\" \"$@\"; }}\n{script}");
    let arguments = [&["run"], &arguments[..], &["--", "sh", "-c", &script]].concat();
    let mut command = mongolock(db, &arguments);
    command.env("ML", env!("CARGO_BIN_EXE_mongolock"));
    command.env("DB", db.name());
    command
}

#[tokio::test]
async fn a_wait_for_a_lock_that_is_held_around_it_ends_at_once() {
    let db = test_db().await;
    let begun = Instant::now();
    for (line, script) in [
        ("a", "ml run a --wait 60s -- true"),
        (
            "a,b c",
            r#"ml run d -- "$ML" --database "$DB" run d e a,b --wait 60s -- true"#,
        ),
        (
            "a",
            r#"ml run b -- "$ML" --database "$DB" run a --wait 60s -- true"#,
        ),
        ("a", "ml hold a --for 1m --wait 60s"),
    ] {
        let said = ends(around(&db, line, script), 75, AROUND);
        assert!(said.contains("help: "), "{said}");
    }
    assert!(begun.elapsed() < WAIT, "{:?}", begun.elapsed());
    ends(around(&db, "a", "ml run a -E 9 -- true"), 9, "");
}

/// A claim that reserves tokens for others: the document has the last one, and the hold the first.
#[tokio::test]
async fn a_hold_with_reserved_tokens_is_known_as_well() {
    let db = test_db().await;
    let provider = provider(&db).await;
    let before = must(provider.lock("a").acquire().await);
    let mut waiters = JoinSet::new();
    for _ in 0..3 {
        let lock = provider.lock("a");
        waiters.spawn(async move { must(lock.acquire().await) });
        tokio::task::yield_now().await;
    }
    until("three calls that wait", async || {
        provider.health().await.waiting == 3
    })
    .await;
    must(before.release().await);
    let holder = must(waiters.join_next().await.expect("three of them wait"));
    let (token, owner) = (holder.fencing_token(), holder.context().owner().to_owned());
    let info = must(provider.admin().get("a").await).expect("it is held");
    assert!(info.fencing_token > token, "{info:?}");
    let mut command = mongolock(&db, &["run", "a", "--wait", "60s", "--", "true"]);
    command.env("MONGOLOCK_INSIDE", format!("[[\"a\",{owner:?},{}]]", token.get()));
    ends(command, 75, AROUND);
}

/// Other locks, and permits, of which another one may be free.
#[tokio::test]
async fn what_is_not_held_around_it_is_acquired() {
    let db = test_db().await;
    for (line, script) in [
        ("a", "ml run b -- true"),
        ("--permits 2 s", "ml run --permits 2 s -- true"),
        ("--permits 2 s", "ml run s -- true"),
        ("a", "ml run --permits 1 a -- true"),
    ] {
        let (code, _, said) = output(around(&db, line, script));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{line}: {script}");
    }
}

/// The hold around it was lost, and another one has the lock.
#[tokio::test]
async fn the_hold_of_another_one_is_waited_for() {
    let db = test_db().await;
    let (code, value, _) = output(around(&db, "a", "printf %s \"$MONGOLOCK_INSIDE\""));
    assert_eq!(code, Some(0));
    assert!(value.contains("\"a\""), "{value}");
    let inside = |line: &str| {
        let mut command = mongolock(&db, &line.split(' ').collect::<Vec<_>>());
        command.env("MONGOLOCK_INSIDE", &value);
        output(command)
    };
    let anna = owner(&db, "anna").await;
    let held = must(anna.lock("a").acquire().await);
    let (code, _, said) = inside("run a --wait 300ms -- true");
    assert!(code == Some(75) && said.contains("anna"), "{said}");
    assert!(!said.contains("around"), "{said}");
    must(held.release().await);
    assert_eq!(inside("run a -- true"), (Some(0), String::new(), String::new()));
}

//! Resources other than MongoDB that check tokens (S1.20): recipes of the guide, with real holders. Its recipe for files is
//! `mongolock_examples::fenced_file`, which the program `queue_workers` uses.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Duration;

use mongolock::{Fenced, FencingToken, LockError, LockProvider};
use mongolock_tests::{must, test_db};
use serde_json::{Value, json};

/// The tokens of a holder whose lease has expired, and of the holder after it.
async fn stale_and_next() -> (FencingToken, FencingToken) {
    let db = test_db().await;
    let lock = LockProvider::new(db.database()).lock("resource");
    let short = lock.clone().expiry(Duration::from_millis(100));
    let stale = must(short.max_hold(Duration::ZERO).acquire().await);
    let next = must(lock.acquire().await);
    assert!(stale.is_lost());
    let tokens = (stale.fencing_token(), next.fencing_token());
    must(next.release().await);
    tokens
}

#[track_caller]
fn is_stale(written: &Result<(), LockError>, tokens: (FencingToken, FencingToken)) {
    let stale = matches!(written, Err(LockError::Stale { token, seen, .. }) if (*token, *seen) == tokens);
    assert!(stale, "{written:?}");
}

/// A service keeps a value for clients that send their tokens. One that restarts continues with the token that it has stored
/// with the value, and a change that panics does not affect later ones.
#[tokio::test]
async fn a_value_rejects_a_stale_holder() {
    let (stale, next) = stale_and_next().await;
    let value = Fenced::new("nothing");
    must(value.write(stale, |value| *value = "by the first"));
    must(value.write(next, |value| *value = "by the next"));
    is_stale(&value.write(stale, |value| *value = "stale"), (stale, next));
    let stored = value.read(|value, seen| (*value, seen));
    assert_eq!(stored, ("by the next", Some(next)));

    let restarted = Fenced::restored("by the next", next);
    is_stale(&restarted.write(stale, |value| *value = "stale"), (stale, next));
    let panicking = AssertUnwindSafe(|| restarted.write(next, |_| panic!("half-way")));
    assert!(catch_unwind(panicking).is_err());
    is_stale(&restarted.write(stale, |value| *value = "stale"), (stale, next));
    must(restarted.write(next, |value| *value = "by the next again"));
    assert_eq!(restarted.read(|value, _| *value), "by the next again");
}

const TABLE: &str =
    "CREATE TABLE reports (id INTEGER PRIMARY KEY, title TEXT NOT NULL, fencing_token INTEGER NOT NULL)";

const UPDATE: &str =
    "UPDATE reports SET title = ?2, fencing_token = ?3 WHERE id = ?1 AND fencing_token <= ?3";

const UPSERT: &str = "INSERT INTO reports (id, title, fencing_token) VALUES (?1, ?2, ?3)
                      ON CONFLICT (id) DO UPDATE SET title = excluded.title, fencing_token = excluded.fencing_token
                      WHERE reports.fencing_token <= excluded.fencing_token";

/// Executes the lines of its input, `[statement, parameters]`, in a table in memory. After each one it prints the number of rows
/// that were written, and the rows that the table has.
const SQLITE: &str = r#"
import json, sqlite3, sys
table = sqlite3.connect(":memory:")
for line in sys.stdin:
    written = table.execute(*json.loads(line)).rowcount
    print(json.dumps([written, table.execute("SELECT title, fencing_token FROM reports").fetchall()]))
"#;

/// What that says after each of these statements.
fn in_a_table(statements: &[Value]) -> Vec<Value> {
    let mut python = Command::new("python3");
    python
        .args(["-c", SQLITE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut python = must(python.spawn());
    let mut input = must(python.stdin.take().ok_or("it is piped"));
    for statement in statements {
        must(writeln!(input, "{statement}"));
    }
    drop(input);
    let output = must(python.wait_with_output());
    must(
        output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(serde_json::from_slice)
            .collect(),
    )
}

/// A table with a column for the token, and a condition on it in each statement, which decides. The query explains.
#[tokio::test]
async fn a_table_rejects_a_stale_holder() {
    let (stale, next) = stale_and_next().await;
    let write =
        |statement: &str, title: &str, token: FencingToken| json!([statement, [1, title, token.get()]]);
    let said = in_a_table(&[
        json!([TABLE, []]),
        write(UPDATE, "no row", next),
        write(UPSERT, "the next", next),
        write(UPDATE, "stale", stale),
        write(UPSERT, "stale", stale),
        write(UPDATE, "the next again", next),
    ]);
    let row = |title: &str| json!([[title, next.get()]]);
    let expected = [
        json!([0, []]),
        json!([1, row("the next")]),
        json!([0, row("the next")]),
        json!([0, row("the next")]),
        json!([1, row("the next again")]),
    ];
    assert_eq!(said[1..], expected);
}

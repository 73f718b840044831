//! Resources other than MongoDB that check tokens (S1.20): recipes of the guide, with real holders. Its recipe for files is
//! `mongolock_examples::fenced_file`, which the program `queue_workers` uses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use mongolock::{Fenced, FencingToken, LockError, LockProvider};
use mongolock_tests::{must, test_db};
use rusqlite::{Connection, OptionalExtension, params};

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

/// A table with a column for the token, and a condition on it in each statement, which decides. The query explains.
#[tokio::test]
async fn a_table_rejects_a_stale_holder() {
    let (stale, next) = stale_and_next().await;
    let table = must(Connection::open_in_memory());
    must(table.execute(TABLE, []));
    let write = |statement: &str, title: &str, token: FencingToken| {
        must(table.execute(statement, params![1, title, token.get()]))
    };
    let row = || {
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
        must(
            table
                .query_row("SELECT title, fencing_token FROM reports", [], row)
                .optional(),
        )
    };
    assert_eq!(write(UPDATE, "no row", next), 0);
    assert_eq!(row(), None);
    assert_eq!(write(UPSERT, "the next", next), 1);
    for statement in [UPDATE, UPSERT] {
        assert_eq!(write(statement, "stale", stale), 0);
        assert_eq!(row(), Some(("the next".to_owned(), next.get())));
    }
    assert_eq!(write(UPDATE, "the next again", next), 1);
    assert_eq!(row(), Some(("the next again".to_owned(), next.get())));
}

//! A table with a column for the token, and a condition on it in each statement.

use mongolock::{Fenced, FencingToken, LockError};
use rusqlite::{Connection, OptionalExtension, params};

use crate::stale_and_next;

const TABLE: &str =
    "CREATE TABLE reports (id INTEGER PRIMARY KEY, title TEXT NOT NULL, fencing_token INTEGER NOT NULL)";

const UPDATE: &str =
    "UPDATE reports SET title = ?2, fencing_token = ?3 WHERE id = ?1 AND fencing_token <= ?3";

const UPSERT: &str = "INSERT INTO reports (id, title, fencing_token) VALUES (?1, ?2, ?3)
                      ON CONFLICT (id) DO UPDATE SET title = excluded.title, fencing_token = excluded.fencing_token
                      WHERE reports.fencing_token <= excluded.fencing_token";

/// Whether the row exists; `LockError::Stale` if a later holder has written it. The statement decides, the query only
/// explains.
fn write(
    table: &Connection,
    statement: &str,
    id: i64,
    title: &str,
    token: FencingToken,
) -> anyhow::Result<bool> {
    if table.execute(statement, params![id, title, token.get()])? > 0 {
        return Ok(true);
    }
    let seen = "SELECT fencing_token FROM reports WHERE id = ?1";
    let seen: Option<i64> = table.query_row(seen, [id], |row| row.get(0)).optional()?;
    if let Some(seen) = seen {
        Fenced::restored((), seen.into()).write(token, |()| ())?;
    }
    Ok(false)
}

#[tokio::test]
async fn a_table_rejects_a_stale_holder() {
    let (stale, next) = stale_and_next().await;
    let table = Connection::open_in_memory().unwrap();
    table.execute(TABLE, []).unwrap();
    assert!(!write(&table, UPDATE, 1, "no row", next).unwrap());
    assert!(write(&table, UPSERT, 1, "the next", next).unwrap());
    for statement in [UPDATE, UPSERT] {
        let error = write(&table, statement, 1, "stale", stale).unwrap_err();
        assert!(matches!(
            error.downcast_ref(),
            Some(LockError::Stale { token, seen, .. }) if (*token, *seen) == (stale, next)
        ));
    }
    let row = || {
        table.query_row("SELECT title, fencing_token FROM reports", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
    };
    assert_eq!(row().unwrap(), ("the next".to_owned(), next.get()));
    assert!(write(&table, UPDATE, 1, "the next again", next).unwrap());
    assert_eq!(row().unwrap().0, "the next again");
}

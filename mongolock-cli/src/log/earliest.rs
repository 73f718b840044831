//! Finds the beginning of the server's oplog.
//!
//! Few users may read the oplog, and a server refuses a change stream that would begin before the oplog only when it
//! reads the first batch. So the time is searched, with streams that end at once.

use mongodb::bson::{DateTime, Timestamp, doc};
use mongodb::error::Error;

use crate::codes::{HISTORY_LOST, TIME_LIMIT, code};
use crate::connection::Collections;

/// The time limit of an attempt, in milliseconds. The server refuses a time before its oplog at once.
const LIMIT: i32 = 200;

/// The limit of the attempt that confirms the time, and how often it is searched again: a server that was stopped for longer than the
/// other limit seems to remember all.
const CONFIRMED_WITHIN: i32 = 1000;
const SEARCHES: usize = 3;

/// The earliest second of all; the server refuses 0.
const FIRST_SECOND: u32 = 1;

/// The seconds by which the first attempt goes back, and the factor for each further attempt.
const FIRST: u32 = 60;
const FARTHER: u32 = 8;

/// The precision of the result: its age divided by this number.
const PRECISION: u32 = 256;

/// The earliest time of the oplog; `None` if it has all events.
pub(super) async fn earliest(collections: &Collections, now: DateTime) -> Result<Option<DateTime>, Error> {
    let now = u32::try_from(now.timestamp_millis() / 1000).unwrap_or(u32::MAX);
    let mut found = None;
    for _ in 0..SEARCHES {
        found = search(now, async |time| remembers(collections, time, LIMIT).await).await?;
        if remembers(collections, found.unwrap_or(FIRST_SECOND), CONFIRMED_WITHIN).await? {
            break;
        }
    }
    Ok(found.map(|time| DateTime::from_millis(i64::from(time) * 1000)))
}

/// The earliest second in the oplog, or one soon after it; `None` if it has all.
async fn search<E>(
    now: u32,
    mut remembers: impl AsyncFnMut(u32) -> Result<bool, E>,
) -> Result<Option<u32>, E> {
    if remembers(FIRST_SECOND).await? {
        return Ok(None);
    }
    // The present second may be lost in part, after many writes; the next one is not.
    let (mut lost, mut kept, mut back) = (FIRST_SECOND, now.saturating_add(1), FIRST);
    while back < now {
        if !remembers(now - back).await? {
            lost = now - back;
            break;
        }
        kept = now - back;
        back = back.saturating_mul(FARTHER);
    }
    while kept - lost > ((now - lost) / PRECISION).max(1) {
        let middle = lost + (kept - lost) / 2;
        if remembers(middle).await? {
            kept = middle;
        } else {
            lost = middle;
        }
    }
    Ok(Some(kept))
}

/// Whether a stream can begin at this second.
async fn remembers(collections: &Collections, time: u32, limit: i32) -> Result<bool, Error> {
    let Collections { database, locks, .. } = collections;
    let time = Timestamp { time, increment: 1 };
    let command = doc! {
        "aggregate": locks.name(), "pipeline": [{ "$changeStream": { "startAtOperationTime": time } }],
        // The first batch is what is refused. Without a filter of its own it ends with any event.
        "cursor": { "batchSize": 1 }, "maxTimeMS": limit,
    };
    let reply = match database.run_command(command).await {
        Ok(reply) => reply,
        Err(error) => {
            return match code(&error) {
                Some(HISTORY_LOST) => Ok(false),
                Some(TIME_LIMIT) => Ok(true),
                _ => Err(error),
            };
        }
    };
    if let Some(cursor) = reply
        .get_document("cursor")
        .ok()
        .and_then(|cursor| cursor.get_i64("id").ok())
    {
        // The server itself ends a remaining cursor after some minutes.
        let _ = database
            .run_command(doc! { "killCursors": locks.name(), "cursors": [cursor] })
            .await;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[tokio::test]
    async fn the_earliest_time_is_found_with_few_attempts() {
        let now = 1_700_000_000;
        for age in [1, 2, 59, 60, 61, 3600, 86_400, 1_000_000, 100_000_000, now - 2] {
            let mut attempts = 0;
            let found = search(now, async |time| {
                attempts += 1;
                Ok::<_, Infallible>(time >= now - age)
            });
            let found = found.await.unwrap().expect("not all is remembered");
            let late = found - (now - age);
            assert!(late <= (age / PRECISION).max(1) + 1, "{age}: {late}");
            assert!(attempts <= 24, "{age}: {attempts}");
        }
        let none = search(now, async |time| Ok::<_, Infallible>(time > now));
        assert_eq!(none.await.unwrap(), Some(now + 1));
        let all = search(now, async |_| Ok::<_, Infallible>(true));
        assert_eq!(all.await.unwrap(), None);
    }
}

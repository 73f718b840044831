//! `record`: writes the turns into a collection of their own, where they stay longer than the oplog.
//!
//! Every ten seconds it reads the events up to the present, and writes what they mean. So it knows exactly up to when the
//! history is complete, and a recorder that takes over goes on there. It keeps no turns in memory: while a turn is on,
//! the field `to` is its lock, by which its end finds it in the index. All writes may be repeated, also late: a recorder that
//! was stopped for a while goes on with its batch, although another one works.

use std::mem;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::{LockEventKind, LockFilter};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::acquire::Signals;
use crate::cli::{ConnectionArguments, RecordArguments};
use crate::connection::Collections;
use crate::exit::Ending;
use crate::failure::{Failure, warn};
use crate::ids::RECORDER;
use crate::log::{self, End, Event, POSITION, What};

/// The time between two batches, and the lease of that lock: another recorder goes on so soon after one that was killed.
const PAUSE: Duration = Duration::from_secs(10);

/// How far a recorder begins before the position of the last one, in milliseconds: a member that has become the primary may
/// have a clock that is behind.
const OVERLAP: i64 = 10_000;

/// How many statements are written at once. It bounds the memory when much is read.
const STATEMENTS: usize = 1000;

pub(crate) async fn record(
    arguments: RecordArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let collections = connection.collections().await?;
    let provider = connection.builder().await?.build()?;
    let signals = Signals::new(&[Signal::INT, Signal::TERM]);
    let mut signals = signals.map_err(Failure::io("cannot wait for signals"))?;
    'recorder: loop {
        let lock = provider.lock(RECORDER).expiry(PAUSE).acquire_timeout(None);
        let guard = tokio::select! {
            guard = lock.acquire() => guard?,
            _ = signals.next() => break,
        };
        set_up(&collections, arguments.keep).await?;
        let mut complete = log::position(&collections).await?.map(|(_, at)| at);
        let mut overlap = OVERLAP;
        loop {
            complete = Some(batch(&collections, complete, overlap).await?);
            if mem::take(&mut overlap) != 0 {
                warn(format_args!("it records into `{}`", collections.history.name()));
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = guard.lost() => break,
                _ = signals.next() => {
                    guard.release().await?;
                    break 'recorder;
                }
            }
        }
    }
    provider.shutdown().await;
    Ok(Ending::OK)
}

/// Makes the index that removes turns so long after their end, and finds those that are on.
async fn set_up(collections: &Collections, keep: Duration) -> Result<(), Failure> {
    let name = collections.history.name();
    let keep = i64::try_from(keep.as_secs()).unwrap_or(i64::MAX);
    let mut index = doc! { "name": "to", "expireAfterSeconds": keep };
    let change = doc! { "collMod": name, "index": &index };
    // It fails if there is no index yet.
    if collections.database.run_command(change).await.is_err() {
        index.insert("key", doc! { "to": 1 });
        let create = doc! { "createIndexes": name, "indexes": [index] };
        collections.database.run_command(create).await?;
    }
    Ok(())
}

/// Writes what has happened up to now, which it returns, since the time up to which the history is complete, and so many
/// milliseconds before that. Without such a time, and after a gap, it begins with the present holds.
async fn batch(
    collections: &Collections,
    complete: Option<DateTime>,
    overlap: i64,
) -> Result<DateTime, Failure> {
    let mut since = complete.map(|at| DateTime::from_millis(at.timestamp_millis() - overlap));
    let now = log::now(collections).await?.timestamp_millis();
    // A batch ends with a whole second.
    let until = DateTime::from_millis(now.div_euclid(1000) * 1000);
    loop {
        let admin = collections.provider.admin();
        let mut events = admin.events(LockFilter::new()).until(until);
        if let Some(since) = since {
            events = events.since(since);
        }
        let (mut some, mut gap) = (Vec::new(), None);
        while gap.is_none()
            && let Some(event) = events.next().await
        {
            match event {
                // What follows are changes of what the stream knows, and it does not know all holds.
                Ok(event) if event.kind == LockEventKind::Gap => gap = event.since,
                Ok(event) => some.extend(log::of_event(event).into_iter().flat_map(statements)),
                Err(error) if since.is_some() && log::is_history_lost(&error) => gap = since.take(),
                Err(error) => return Err(log::refused(error)),
            }
            if some.len() >= STATEMENTS {
                write(collections, mem::take(&mut some)).await?;
            }
        }
        let Some(from) = gap else {
            let set = doc! { "$max": { "at": until }, "$setOnInsert": { "since": until } };
            some.push(doc! { "q": { "_id": POSITION }, "u": set, "upsert": true });
            return write(collections, some).await.map(|()| until);
        };
        if let Some((_, at)) = log::position(collections).await?
            && complete < Some(at)
        {
            // This recorder was stopped, and another one has recorded that time.
            return Ok(at);
        }
        some.extend(missed(complete.map_or(from, |at| at.max(from)), until));
        write(collections, some).await?;
        since = None;
    }
}

/// The statements of an update that write what an event means.
fn statements(event: Event) -> Vec<Document> {
    let (at, hold, mut lock) = (event.at, event.hold, doc! { "name": event.key.name });
    if let Some(number) = event.key.permit {
        lock.insert("permit", i64::from(number));
    }
    let earlier = doc! { "to": &lock, "from": { "$lte": at } };
    match event.what {
        What::Acquired | What::Present(Some(End::Held)) => {
            let from = hold.acquired_at.unwrap_or(at);
            let before = doc! { "to": &lock, "from": { "$lt": from } };
            let turn = doc! { "from": from, "lockId": hold.lock_id, "to": &lock };
            let again = doc! { "$set": { "to": &lock }, "$unset": { "end": 1 } };
            // A permit has no token.
            lock.insert("token", hold.token.unwrap_or(from.timestamp_millis()));
            vec![
                end(before, from, End::ExpiredBy),
                doc! { "q": { "_id": &lock }, "u": { "$setOnInsert": turn }, "upsert": true },
                // A gap in which it went on, or the end of the turn before that was read again, has ended it.
                doc! { "q": { "_id": lock, "to": { "$lte": at } }, "u": again, "hint": "_id_" },
            ]
        }
        // Its id is that of the notes.
        What::Changed => {
            let mut hold_now = doc! { "lockId": hold.lock_id };
            // A lease that is resumed has a token of its own.
            hold_now.extend(hold.token.map(|token| ("token".to_owned(), Bson::from(token))));
            vec![doc! { "q": earlier, "u": { "$set": hold_now } }]
        }
        What::Ended(how) => vec![end(earlier, at, how)],
        What::AllDeleted => vec![end(
            doc! { "to": { "$type": "object" }, "from": { "$lte": at } },
            at,
            End::ExpiredBy,
        )],
        _ => Vec::new(),
    }
}

/// The statements for a gap between these times. The turns end at its beginning, unless they are found again; one that has
/// begun later, and was written by a recorder that did not finish its batch, ends where it began.
fn missed(from: DateTime, until: DateTime) -> [Document; 2] {
    let gap = doc! { "$set": { "from": from, "to": until } };
    let to = doc! { "$max": ["$from", from] };
    let ends = doc! { "$set": { "to": to, "end": End::Unknown.as_str() } };
    [
        doc! { "q": { "_id": { "gap": from } }, "u": gap, "upsert": true },
        doc! { "q": { "to": { "$type": "object" } }, "u": [ends], "multi": true },
    ]
}

/// The statement that ends these turns.
fn end(turns: Document, to: DateTime, how: End) -> Document {
    doc! { "q": turns, "u": { "$set": { "to": to, "end": how.as_str() } }, "multi": true }
}

/// Writes in this order. What a majority has is not rolled back: no batch would write it again.
async fn write(collections: &Collections, statements: Vec<Document>) -> Result<(), Failure> {
    let (name, concern) = (collections.history.name(), doc! { "w": "majority" });
    let update = doc! { "update": name, "updates": statements, "writeConcern": concern };
    let reply = collections.database.run_command(update).await?;
    match reply.get("writeErrors").or(reply.get("writeConcernError")) {
        Some(error) => Err(Failure::new(format!("cannot write the history: {error}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

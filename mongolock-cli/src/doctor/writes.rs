//! Checks that need a write: whether a majority confirms a write, and whether the collection accepts each document of a
//! lock. Neither changes any data.

use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, Document, doc, oid::ObjectId};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use mongodb::{ClientSession, Collection};
use tokio::time::timeout;

use super::Finding;
use crate::codes::{UNAUTHORIZED, code};
use crate::connection::Collections;
use crate::driver;
use crate::text::{difference, short};

/// How long a majority may take to confirm the write. The limits of the library's requests are not much longer.
const LIMIT: Duration = Duration::from_secs(5);

/// The codes of a write that no majority has confirmed in time, or can confirm.
const UNCONFIRMED: [i32; 2] = [64, 100];

/// The codes with which a collection refuses a document: a validator, a unique index.
const REFUSED: [i32; 2] = [121, 11000];

/// The time by which a reply may be later than the time limit at the server.
const REPLY: Duration = Duration::from_secs(1);

/// A majority write with an update of the kind that locks have, which matches no document.
pub(super) async fn majority(collections: &Collections) -> Finding {
    let check = "majority write";
    let matches_nothing = doc! { "_id": { "$in": [] } };
    let update = vec![doc! { "$set": { "expiresAt": "$$NOW" } }];
    let concern = WriteConcern::builder()
        .w(Acknowledgment::Majority)
        .w_timeout(LIMIT)
        .build();
    let write = collections
        .locks
        .update_many(matches_nothing, update)
        .write_concern(concern);
    let begun = Instant::now();
    let Ok(reply) = timeout(LIMIT + REPLY, write.into_future()).await else {
        return unconfirmed(check, "no reply");
    };
    let Err(error) = reply else {
        return Finding::ok(check, format!("confirmed within {}", difference(begun.elapsed())));
    };
    match (&*error.kind, code(&error)) {
        (ErrorKind::Write(WriteFailure::WriteConcernError(error)), _)
            if UNCONFIRMED.contains(&error.code) =>
        {
            unconfirmed(check, &error.message)
        }
        (ErrorKind::Write(WriteFailure::WriteConcernError(_)), _) => {
            Finding::unknown(check, driver::text(&error))
        }
        (_, Some(UNAUTHORIZED)) => Finding::unknown(check, "this user may not write, so it was not tried"),
        _ => Finding::refused(check, "a write is refused: ", error.into()),
    }
}

fn unconfirmed(check: &'static str, reason: &str) -> Finding {
    let said = format!(
        "no majority of the members confirms a write within {}: {reason}",
        short(LIMIT)
    );
    let mend = "rs.status() and rs.printSecondaryReplicationInfo() name the members that do not";
    Finding::wrong(check, said, mend)
}

/// Writes the documents of a lock that is acquired, released and marked, and of a second one that is released, in a
/// transaction that is aborted; `None` if that cannot be tried. Other findings report a missing right.
pub(super) async fn documents(collections: &Collections) -> Option<Finding> {
    let mut session = collections.database.client().start_session().await.ok()?;
    // The abort must not wait for a majority, and the string may have a read concern that transactions do not support.
    let begun = session.start_transaction().write_concern(WriteConcern::nodes(1));
    begun.read_concern(ReadConcern::local()).await.ok()?;
    let tried = timeout(LIMIT, try_documents(&collections.locks, &mut session))
        .await
        .ok()?;
    // The server aborts it by itself if this does not arrive.
    let _ = timeout(REPLY, session.abort_transaction().into_future()).await;
    let check = "write of locks";
    match tried {
        Ok(()) => Some(Finding::ok(check, "a lock can be acquired, released and marked")),
        Err((what, error)) if code(&error).is_some_and(|code| REFUSED.contains(&code)) => Some(
            Finding::refused(check, &format!("{what} is refused: "), error.into()),
        ),
        // There are servers without transactions.
        Err(_) => None,
    }
}

async fn try_documents(
    locks: &Collection<Document>,
    session: &mut ClientSession,
) -> Result<(), (&'static str, Error)> {
    let lock_id = format!("mongolock-doctor#{}", ObjectId::new().to_hex());
    let ids = [format!("{lock_id}-1"), format!("{lock_id}-2")];
    let now = DateTime::now();
    for id in &ids {
        let held =
            doc! { "_id": id, "lockId": id, "acquiredAt": now, "expiresAt": now, "fencingToken": 1_i64 };
        let inserted = locks.insert_one(held).session(&mut *session).await;
        inserted.map_err(|error| ("an acquisition", error))?;
    }
    let steps = [
        (&ids[0], String::new(), "a release"),
        (&ids[1], String::new(), "a second release"),
        (&ids[1], format!("done:{lock_id}"), "a mark"),
    ];
    for (id, left, what) in steps {
        let change = doc! { "$set": { "lockId": left, "expiresAt": now } };
        let changed = locks.update_one(doc! { "_id": id }, change);
        let changed = changed.session(&mut *session).await;
        changed.map_err(|error| (what, error))?;
    }
    Ok(())
}

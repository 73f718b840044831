//! The queries for holders, and for what they wait for: one of each for each step from a holder to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;

use super::chain::{Holder, Known, Wait};
use crate::connection::{Collections, now};
use crate::driver;
use crate::failure::Failure;
use crate::ids;

/// The number of steps: a chain that is longer is cut.
const STEPS: usize = 16;

/// How long the server may look.
const LIMIT: Duration = Duration::from_secs(5);

/// Reads the holders of a lock or semaphore, what those wait for, and so on. Returns as well the names of both that are
/// held, as others wait for them.
pub(super) async fn read(collections: &Collections, name: &str) -> Result<(Known, Vec<String>), Failure> {
    let first = [name.to_owned(), ids::any_permit(name)];
    let mut known = Known {
        now: now(collections).await?,
        holders: BTreeMap::new(),
        waits: Vec::new(),
        stuck: BTreeSet::new(),
    };
    let mut names = first.to_vec();
    for _ in 0..STEPS {
        let (found, now) = holders(&collections.locks, &names).await?;
        known.now = now.unwrap_or(known.now);
        let holds: Vec<String> = found.iter().map(|(_, holder)| holder.lock_id.clone()).collect();
        for name in names {
            known.holders.entry(name).or_default();
        }
        for (name, holder) in found {
            known.holders.entry(name).or_default().push(holder);
        }
        // Without the right to read the documents of waiters nothing more is known.
        let waits = waits(&collections.waiters, &holds).await.unwrap_or_default();
        let new = waits.into_iter().filter(|wait| !known.waits.contains(wait));
        let new: Vec<Wait> = new.collect();
        let awaited: BTreeSet<String> = new.iter().map(|wait| wait.name.clone()).collect();
        names = awaited
            .into_iter()
            .filter(|name| !known.holders.contains_key(name))
            .collect();
        known.waits.extend(new);
        if names.is_empty() {
            break;
        }
    }
    let is_held = |name: &String| known.holders.get(name).is_some_and(|holders| !holders.is_empty());
    let held = first.into_iter().filter(is_held).collect();
    Ok((known, held))
}

/// The holders of these names by running leases, and the server's time.
async fn holders(
    locks: &Collection<Document>,
    names: &[String],
) -> Result<(Vec<(String, Holder)>, Option<DateTime>), Failure> {
    let (permits, plain): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| ids::is_any_permit(name));
    let ranges = permits.iter().map(|group| {
        let end = ids::after_permits(ids::shown(group));
        doc! { "_id": { "$gte": group.as_str(), "$lt": end } }
    });
    let any: Vec<Document> = ranges.chain([doc! { "_id": { "$in": plain } }]).collect();
    let filter = doc! { "$or": any, "$expr": { "$gt": ["$expiresAt", "$$NOW"] } };
    let fields = doc! { "lockId": 1, "acquiredAt": 1, "expiresAt": 1, "now": "$$NOW" };
    let found = driver::all(locks.find(filter).projection(fields).max_time(LIMIT).await);
    let documents = found.await?;
    let now = documents
        .iter()
        .find_map(|document| document.get_datetime("now").ok());
    let mut holders: Vec<(String, Holder)> = documents.iter().filter_map(holder).collect();
    holders.sort_by_key(|(_, holder)| holder.permit);
    Ok((holders, now.copied()))
}

/// The holder in a document; `None` if nobody holds the lock, if its work is done, or if the document is damaged.
fn holder(document: &Document) -> Option<(String, Holder)> {
    let (id, lock_id) = (document.get_str("_id").ok()?, document.get_str("lockId").ok()?);
    if !ids::is_hold(lock_id) {
        return None;
    }
    let (name, permit) = ids::awaited(id);
    let holder = Holder {
        lock_id: lock_id.to_owned(),
        permit,
        since: *document.get_datetime("acquiredAt").ok()?,
        until: *document.get_datetime("expiresAt").ok()?,
    };
    Some((name, holder))
}

/// The waits of callers that have these holds. Their documents are those of the processes that have the holds, and of those
/// that run inside them, which such a document names.
async fn waits(waiters: &Collection<Document>, holds: &[String]) -> Result<Vec<Wait>, Error> {
    let marks: BTreeSet<String> = holds
        .iter()
        .filter_map(|hold| ids::mark(hold))
        .map(str::to_owned)
        .collect();
    let documents = of_processes(waiters, &marks, holds).await?;
    let inside = documents
        .iter()
        .filter_map(|document| document.get_str("inside").ok());
    let inside: BTreeSet<String> = inside.map(str::to_owned).collect();
    let more = of_processes(waiters, &inside, holds).await?;
    let mut waits: Vec<Wait> = documents.iter().chain(&more).filter_map(wait).collect();
    waits.sort_by_key(|wait| wait.since);
    Ok(waits)
}

async fn of_processes(
    waiters: &Collection<Document>,
    marks: &BTreeSet<String>,
    holds: &[String],
) -> Result<Vec<Document>, Error> {
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let ranges = marks.iter().map(|mark| {
        // `;` is the character after `:`.
        doc! { "_id": { "$gte": format!("{mark}:"), "$lt": format!("{mark};") } }
    });
    let listing = [
        doc! { "holds": { "$in": holds } },
        doc! { "may_hold": { "$in": holds } },
        doc! { "inside": { "$exists": true } },
    ];
    let both = [
        doc! { "$or": ranges.collect::<Vec<_>>() },
        doc! { "$or": listing.to_vec() },
    ];
    let filter = doc! { "$and": both.to_vec(), "$expr": { "$gt": ["$until", "$$NOW"] } };
    driver::all(waiters.find(filter).max_time(LIMIT).await).await
}

/// The wait in a document; `None` if nobody waits there, or if the document is damaged.
fn wait(document: &Document) -> Option<Wait> {
    let text = |field: &str| document.get_str(field).ok().map(str::to_owned);
    let texts = |field: &str| {
        let all = document.get_array(field).ok().into_iter().flatten();
        all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    Some(Wait {
        provider: text("provider")?,
        owner: text("owner").unwrap_or_default(),
        name: text("name")?,
        since: *document.get_datetime("holds_since").ok()?,
        holds: texts("holds"),
        may_hold: texts("may_hold"),
    })
}

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::Selected;
use super::mongo::encoder::by_server;
use super::mongo::fields::sight;
use super::mongo::{MongoStore, millis};
use super::ttl_index::BUILD_LOCK;
use crate::lock_id::{KEPT_PREFIX, MARK_PREFIX};
use crate::protocol::{Name, Sight};
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, LockFilter, LockState, permit_id};

/// The largest number of locks that one query returns. It bounds the memory of a stream, and the time that one query
/// takes.
const PAGE_SIZE: u32 = 1000;

impl MongoStore {
    /// A page of the documents of a selection: the first ones after this name, this number at most; and the last name, if
    /// others follow it.
    ///
    /// Each page is a query of its own instead of a batch of one cursor. A cursor would have one time limit and one
    /// `$$NOW` for all its batches, would be lost with its server, and would stay open while the caller pauses.
    pub(super) async fn select(
        &self,
        selected: Selected<'_>,
        after: Option<&str>,
        limit: Option<u32>,
    ) -> Result<(Vec<(Name, Sight)>, Option<Name>), LockError> {
        let size = limit.map_or(PAGE_SIZE, |limit| limit.min(PAGE_SIZE));
        if size == 0 {
            // To the server 0 means no limit.
            return Ok((Vec::new(), None));
        }
        let mut query = selected.query();
        if let Some(after) = after {
            query = doc! { "$and": [{ "_id": { "$gt": after } }, query] };
        }
        let mut found = self
            .locks
            .find(query)
            .projection(by_server().fields())
            .sort(doc! { "_id": 1 })
            .max_time(COMMAND_LIMIT)
            .limit(i64::from(size))
            .batch_size(size)
            .await?;
        let mut seen = Vec::new();
        while found.advance().await? {
            let document: Document = found.deserialize_current()?;
            let name = document.get_str("_id").unwrap_or_default();
            seen.push((Arc::from(name), sight(&document)));
        }
        let is_full = seen.len() == size as usize;
        let last = seen.last().filter(|_| is_full);
        let last = last.map(|(name, _)| Arc::clone(name));
        Ok((seen, last))
    }
}

impl Selected<'_> {
    fn query(self) -> Document {
        match self {
            Self::Name(name) => doc! { "_id": name },
            Self::Filter(filter) => conditions(filter),
            Self::Taken(filter, ids) => {
                let mut taken = doc! { "lockId": { "$ne": "", "$not": begins_with(&[KEPT_PREFIX]) } };
                if let Some(ids) = ids {
                    taken.insert("_id", doc! { "$in": ids });
                }
                doc! { "$and": [taken, conditions(&filter.of_names())] }
            }
            Self::Owner(owner) => doc! { "$and": [
                conditions(&LockFilter::new()),
                { "lockId": of_owner(KEPT_PREFIX, owner) },
            ] },
        }
    }
}

/// The condition for a lease that is valid.
fn is_running() -> Document {
    by_server().runs(millis(Duration::ZERO))
}

/// The query for the conditions of a filter, by the rules of [`LockFilter::admits`] and without the limit. It leaves
/// out the internal lock of the index build, which is not a user's lock.
pub(super) fn conditions(filter: &LockFilter) -> Document {
    let mut conditions = vec![doc! { "_id": { "$type": "string", "$ne": BUILD_LOCK } }];
    if let Some(name) = &filter.name {
        conditions.push(doc! { "$or": named("_id", name).to_vec() });
    }
    if let Some(prefix) = &filter.prefix {
        conditions.push(doc! { "_id": { "$regex": format!("^{}", literally(prefix)) } });
    }
    if let Some(owner) = &filter.owner {
        conditions.push(doc! { "lockId": of_owner(MARK_PREFIX, owner) });
    }
    let is_mark = begins_with(&[MARK_PREFIX]);
    let is_claim = doc! { "$ne": "", "$not": begins_with(&[MARK_PREFIX, KEPT_PREFIX]) };
    match filter.state {
        None => {}
        Some(LockState::Held) => {
            conditions.push(doc! { "lockId": is_claim, "$expr": is_running() });
        }
        Some(LockState::Expired) => {
            conditions.push(doc! { "lockId": is_claim, "$expr": { "$not": is_running() } });
        }
        Some(LockState::Released) => conditions.push(doc! { "$or": [
            { "lockId": "" },
            { "lockId": begins_with(&[KEPT_PREFIX]) },
            { "lockId": is_mark, "$expr": { "$not": is_running() } },
        ] }),
        Some(LockState::Done) => conditions.push(doc! { "lockId": is_mark, "$expr": is_running() }),
    }
    doc! { "$and": conditions }
}

/// The conditions for a field with the `_id` of this lock, or of a permit of this semaphore.
pub(super) fn named(field: &str, name: &str) -> [Document; 2] {
    let permits = format!("^{}", literally(&permit_id::group(name)));
    [doc! { field: name }, doc! { field: { "$regex": permits } }]
}

/// The condition for the `lockId` of this owner's claims, also with this prefix.
fn of_owner(prefix: &str, owner: &str) -> Document {
    doc! { "$regex": format!("^({prefix})?{}#[^#]*$", literally(owner)) }
}

/// The condition for a `lockId` that begins with one of these prefixes.
pub(super) fn begins_with(prefixes: &[&str]) -> Document {
    doc! { "$regex": format!("^({})", prefixes.join("|")) }
}

/// The regular expression that matches exactly this text.
pub(super) fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\0' {
            // The server refuses a pattern with a NUL byte in it.
            pattern.push_str("\\x00");
            continue;
        }
        // A backslash gives ASCII letters and digits a special meaning, and takes it from all other ASCII characters.
        if c.is_ascii() && !c.is_ascii_alphanumeric() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

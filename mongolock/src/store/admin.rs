use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::claims::{merged, unfit};
use super::mongo::MongoStore;
use super::takeover::taken;
use super::ttl_index::BUILD_LOCK;
use super::{HoldsOf, SeenHold};
use crate::lock_id::{KEPT_PREFIX, MARK_PREFIX};
use crate::store::info::{Page, Seen};
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, LockFilter, LockInfo, LockState, permit_id};

/// The largest number of locks that one query returns. It bounds the memory of a stream, and the time that one query
/// takes.
const PAGE_SIZE: u32 = 1000;

impl MongoStore {
    /// One page of the locks that meet the filter: the first ones after this name.
    ///
    /// Each page is a query of its own instead of a batch of one cursor. A cursor would have one time limit and one
    /// `$$NOW` for all its batches, would be lost with its server, and would stay open while the caller pauses.
    pub(crate) async fn page(
        &self,
        filter: &LockFilter,
        after: Option<&str>,
        takeover_margin: Duration,
    ) -> Result<Page, LockError> {
        let (documents, last_name) = self.documents(conditions(filter), after, filter.limit).await?;
        let info = |document: &Document| info(name_of(document), document, takeover_margin);
        let locks = documents.iter().map(info).collect();
        Ok(Page { locks, last_name })
    }

    /// A page of the documents that meet a query: the first ones after this name, this number at most; and the last name, if
    /// others follow it.
    pub(super) async fn documents(
        &self,
        mut query: Document,
        after: Option<&str>,
        limit: Option<u32>,
    ) -> Result<(Vec<Document>, Option<String>), LockError> {
        let size = limit.map_or(PAGE_SIZE, |limit| limit.min(PAGE_SIZE));
        if size == 0 {
            // To the server 0 means no limit.
            return Ok((Vec::new(), None));
        }
        if let Some(after) = after {
            query = doc! { "$and": [{ "_id": { "$gt": after } }, query] };
        }
        let mut found = self
            .locks
            .find(query)
            .projection(seen_fields())
            .sort(doc! { "_id": 1 })
            .max_time(COMMAND_LIMIT)
            .limit(i64::from(size))
            .batch_size(size)
            .await?;
        let mut documents = Vec::new();
        while found.advance().await? {
            documents.push(found.deserialize_current()?);
        }
        let is_full = documents.len() == size as usize;
        let last = documents.last().filter(|_| is_full);
        let last = last.map(|last| name_of(last).to_owned());
        Ok((documents, last))
    }

    pub(crate) async fn get(
        &self,
        name: &str,
        takeover_margin: Duration,
    ) -> Result<Option<LockInfo>, LockError> {
        let found = self
            .locks
            .find_one(doc! { "_id": name })
            .projection(seen_fields())
            .max_time(COMMAND_LIMIT)
            .await?;
        found
            .map(|document| info(name, &document, takeover_margin))
            .transpose()
    }

    /// Releases what was read, and nothing that has begun since. No date says which that is: the clock of the server that has
    /// set it may have been wrong.
    pub(crate) async fn force_release(&self, hold: &SeenHold) -> Result<bool, LockError> {
        let as_read = [("lockId", &hold.lock_id), ("fencingToken", &hold.token)];
        let as_read = as_read.map(|(field, value)| is_as_read(field, value.as_ref()));
        let command = doc! {
            "findAndModify": self.locks.name(),
            "query": { "_id": &*hold.name, "$expr": { "$and": as_read.to_vec() } },
            "update": [forced_stage()],
            "fields": { "_id": 1 },
        };
        let reply = self.write(&self.locks, command, COMMAND_LIMIT).await?;
        Ok(reply.get_document("value").is_ok())
    }

    /// The documents of locks that are taken or damaged.
    pub(crate) async fn seen_holds(
        &self,
        of: HoldsOf<'_>,
        takeover_margin: Duration,
    ) -> Result<Vec<SeenHold>, LockError> {
        let wanted = match of {
            HoldsOf::Name(name) => doc! { "_id": name },
            // No owner begins with the prefix of a mark or of a minimum hold.
            HoldsOf::Owner(owner) if [MARK_PREFIX, KEPT_PREFIX].iter().any(|it| owner.starts_with(it)) => {
                return Ok(Vec::new());
            }
            HoldsOf::Owner(owner) => doc! { "$and": [
                conditions(&LockFilter::new()),
                { "lockId": of_owner(KEPT_PREFIX, owner) },
            ] },
        };
        let is_stuck = doc! { "$or": [taken(takeover_margin), { "$not": is_sound() }] };
        let mut found = self
            .locks
            .find(doc! { "$and": [wanted, { "$expr": is_stuck }] })
            .projection(doc! { "lockId": 1, "fencingToken": 1 })
            .max_time(COMMAND_LIMIT)
            .await?;
        let mut holds = Vec::new();
        while found.advance().await? {
            let document = found.deserialize_current()?;
            holds.push(SeenHold {
                name: Arc::from(name_of(&document)),
                lock_id: document.get("lockId").cloned(),
                token: document.get("fencingToken").cloned(),
            });
        }
        Ok(holds)
    }
}

/// The fields to read, and the server's time, which is the same for all documents of one query.
fn seen_fields() -> Document {
    doc! { "lockId": 1, "acquiredAt": 1, "expiresAt": 1, "fencingToken": 1, "now": "$$NOW" }
}

/// The condition for a lease that is valid.
fn is_running() -> Document {
    taken(Duration::ZERO)
}

/// Whether a field has the value that was read, of whatever type.
fn is_as_read(field: &str, value: Option<&Bson>) -> Document {
    let field = format!("${field}");
    let missing = || doc! { "$eq": [{ "$type": &field }, "missing"] };
    value.map_or_else(missing, |value| doc! { "$eq": [&field, { "$literal": value }] })
}

/// Whether all fields have their types.
fn is_sound() -> Document {
    let types = [
        ("$lockId", "string"),
        ("$acquiredAt", "date"),
        ("$expiresAt", "date"),
        ("$fencingToken", "long"),
    ];
    let has_type = types.map(|(field, wanted)| doc! { "$eq": [{ "$type": field }, wanted] });
    doc! { "$and": has_type.to_vec() }
}

/// The update of a forced release. A damaged document gets all fields anew; a token that can be read goes on rising.
fn forced_stage() -> Document {
    let token =
        doc! { "$cond": [{ "$eq": [{ "$type": "$fencingToken" }, "long"] }, "$fencingToken", Bson::Null] };
    let anew = doc! {
        "lockId": "", "acquiredAt": "$$NOW", "expiresAt": "$$NOW",
        "fencingToken": { "$max": [token, { "$multiply": [{ "$toLong": "$$NOW" }, 1000_i64] }] },
    };
    let released = doc! { "lockId": "", "expiresAt": "$$NOW" };
    doc! { "$replaceWith": merged(doc! { "$cond": [is_sound(), released, anew] }) }
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

fn name_of(document: &Document) -> &str {
    document.get_str("_id").unwrap_or_default()
}

pub(super) fn info(
    name: &str,
    document: &Document,
    takeover_margin: Duration,
) -> Result<LockInfo, LockError> {
    let seen = seen(name, document)?;
    let seen = Seen {
        takeover_margin,
        ..seen
    };
    Ok(seen.into())
}

/// The fields of a document that a query with [`seen_fields`] has read, without a takeover margin.
pub(super) fn seen<'a>(name: &'a str, document: &'a Document) -> Result<Seen<'a>, LockError> {
    let unfit = |field, wanted| unfit(name, document, field, wanted);
    let text = |field| document.get_str(field).map_err(|_| unfit(field, "a string"));
    let date = |field| document.get_datetime(field).map_err(|_| unfit(field, "a date"));
    let token = document.get_i64("fencingToken");
    Ok(Seen {
        name,
        lock_id: text("lockId")?,
        acquired_at: *date("acquiredAt")?,
        expires_at: *date("expiresAt")?,
        token: token.map_err(|_| unfit("fencingToken", "a 64-bit integer"))?,
        now: *date("now")?,
        takeover_margin: Duration::ZERO,
    })
}

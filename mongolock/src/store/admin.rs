use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};

use super::claims::{release_stage, unfit};
use super::mongo::{MongoStore, millis};
use super::takeover::taken;
use super::ttl_index::BUILD_LOCK;
use super::{EndedHold, ForcedHold, LeaseId, NotesById, WaitersByName, waiters};
use crate::lock_id::MARK_PREFIX;
use crate::store::info::{Page, Seen, may_have_note};
use crate::timing::{COMMAND_LIMIT, FORCED_REST};
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
        let hints = self.hints_of(&documents).await;
        let info = |document: &Document| info(name_of(document), document, takeover_margin, &hints);
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
        let Some(document) = found else {
            return Ok(None);
        };
        let hints = self.hints_of(std::slice::from_ref(&document)).await;
        info(name, &document, takeover_margin, &hints).map(Some)
    }

    /// The waiters for these locks and the notes of their holders, with two queries at the same time. Without the right to read
    /// them, or after another error, none are known: the locks themselves can be read all the same.
    async fn hints_of(&self, locks: &[Document]) -> Hints {
        let awaited = |lock: &Document| Arc::from(permit_id::awaited(name_of(lock)));
        let names: Vec<Arc<str>> = locks.iter().map(awaited).collect();
        if names.is_empty() {
            return Hints::default();
        }
        let ids = locks.iter().filter_map(|lock| lock.get_str("lockId").ok());
        let ids: Vec<Arc<str>> = ids.filter(|id| may_have_note(id)).map(Arc::from).collect();
        let notes = async {
            if ids.is_empty() {
                return NotesById::new();
            }
            self.notes(&ids, COMMAND_LIMIT).await.unwrap_or_default()
        };
        let (lines, notes) = tokio::join!(self.lines(&names, COMMAND_LIMIT), notes);
        Hints {
            lines: lines.unwrap_or_default(),
            notes,
        }
    }

    pub(crate) async fn force_release(
        &self,
        name: &str,
        hold: &ForcedHold,
        takeover_margin: Duration,
    ) -> Result<Option<EndedHold>, LockError> {
        let mut seen = doc! { "_id": name, "$expr": ends_now(takeover_margin) };
        match hold {
            ForcedHold::Any => {}
            ForcedHold::OfToken(token) => drop(seen.insert("fencingToken", token)),
            ForcedHold::OfId(lock_id) => drop(seen.insert("lockId", &**lock_id)),
        }
        let command = doc! {
            "findAndModify": self.locks.name(),
            "query": seen,
            "update": [release_stage(Duration::ZERO)],
            "fields": { "lockId": 1, "expiresAt": 1 },
        };
        let reply = self.write(&self.locks, command, COMMAND_LIMIT).await?;
        Ok(reply.get_document("value").ok().map(|before| EndedHold {
            lock_id: Arc::from(before.get_str("lockId").unwrap_or_default()),
            expires_at: before.get_datetime("expiresAt").copied().unwrap_or(DateTime::MIN),
        }))
    }

    /// The claims of this owner whose locks are not free.
    pub(crate) async fn claims_of_owner(
        &self,
        owner: &str,
        takeover_margin: Duration,
    ) -> Result<Vec<LeaseId>, LockError> {
        let claims = conditions(&LockFilter::new().owner(owner));
        let seen = doc! { "$and": [claims, { "lockId": { "$not": is_mark() } }, { "$expr": ends_now(takeover_margin) }] };
        let mut found = self
            .locks
            .find(seen)
            .projection(doc! { "lockId": 1 })
            .max_time(COMMAND_LIMIT)
            .await?;
        let mut claims = Vec::new();
        while found.advance().await? {
            let document = found.current();
            if let (Ok(name), Ok(lock_id)) = (document.get_str("_id"), document.get_str("lockId")) {
                claims.push(LeaseId {
                    name: Arc::from(name),
                    lock_id: Arc::from(lock_id),
                });
            }
        }
        Ok(claims)
    }
}

/// What the documents of the waiters say about locks.
#[derive(Default)]
pub(super) struct Hints {
    lines: WaitersByName,
    notes: NotesById,
}

/// The fields to read, and the server's time, which is the same for all documents of one query.
fn seen_fields() -> Document {
    doc! { "lockId": 1, "acquiredAt": 1, "expiresAt": 1, "fencingToken": 1, "now": "$$NOW" }
}

/// The condition for a lease that is valid.
fn is_running() -> Document {
    taken(Duration::ZERO)
}

/// The condition for a lock that is not free, and whose lease began before this command: a lease that began while the
/// command waited in the server is not the one that the operator has seen. A lock that was released meanwhile looks like the rest
/// of a minimum hold.
fn ends_now(takeover_margin: Duration) -> Document {
    let soon = doc! { "$add": ["$$NOW", millis(FORCED_REST)] };
    let is_worth_it = doc! { "$or": [{ "$ne": ["$lockId", ""] }, { "$gt": ["$expiresAt", soon] }] };
    doc! { "$and": [taken(takeover_margin), { "$lte": ["$acquiredAt", "$$NOW"] }, is_worth_it] }
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
        let pattern = format!("^({MARK_PREFIX})?{}#[^#]*$", literally(owner));
        conditions.push(doc! { "lockId": { "$regex": pattern } });
    }
    match filter.state {
        None => {}
        Some(LockState::Held) => {
            conditions.push(doc! { "lockId": { "$ne": "", "$not": is_mark() }, "$expr": is_running() });
        }
        Some(LockState::Expired) => conditions
            .push(doc! { "lockId": { "$ne": "", "$not": is_mark() }, "$expr": { "$not": is_running() } }),
        Some(LockState::Released) => conditions.push(doc! { "$or": [
            { "lockId": "" },
            { "lockId": is_mark(), "$expr": { "$not": is_running() } },
        ] }),
        Some(LockState::Done) => conditions.push(doc! { "lockId": is_mark(), "$expr": is_running() }),
    }
    doc! { "$and": conditions }
}

/// The conditions for a field with the `_id` of this lock, or of a permit of this semaphore.
pub(super) fn named(field: &str, name: &str) -> [Document; 2] {
    let permits = format!("^{}", literally(&permit_id::group(name)));
    [doc! { field: name }, doc! { field: { "$regex": permits } }]
}

/// The condition for the `lockId` of a mark.
fn is_mark() -> Document {
    doc! { "$regex": format!("^{MARK_PREFIX}") }
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
    hints: &Hints,
) -> Result<LockInfo, LockError> {
    let seen = seen(name, document)?;
    let seen = Seen {
        takeover_margin,
        waiters: waiters::infos(hints.lines.get(permit_id::awaited(name)), seen.lock_id),
        note: hints.notes.get(seen.lock_id).cloned(),
        ..seen
    };
    Ok(seen.into())
}

/// The fields of a document that a query with [`seen_fields`] has read, without a takeover margin, waiters and a note.
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
        waiters: Vec::new(),
        note: None,
    })
}

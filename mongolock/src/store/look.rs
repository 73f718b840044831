//! The documents that a query reads: for the server, and in memory.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::info::info;
use super::mongo::encoder::by_server;
use crate::lock_id::{self, KEPT_PREFIX, MARK_PREFIX};
use crate::protocol::{Name, Sight};
use crate::{LockFilter, LockState, permit_id};

/// The documents that a query reads.
#[derive(Debug, Clone)]
pub(crate) enum Looked {
    /// Those of these locks and permits. The name of a semaphore's group means all of its permits, also those beyond the number that
    /// a caller knows.
    Names(Vec<Name>),
    /// Those of the locks that meet the filter, whose limit does not count.
    Filter(LockFilter),
    /// Those that meet the name and the prefix of the filter, and name a holder or have a mark.
    Taken(LockFilter),
    /// Those of the claims of an owner, also during their minimum holds; marks are none of them.
    Owner(String),
}

/// The documents that a query has found, with the names of their locks.
pub(crate) type Found = Vec<(Name, Sight)>;

/// The number of documents of a query that has no smaller one: those of all awaited locks of a process, or of a semaphore.
pub(crate) const ALL: u32 = i32::MAX.unsigned_abs();

impl Looked {
    /// The query of the server. For an owner it finds others as well, which begin like a mark.
    pub(super) fn query(&self) -> Document {
        let mut conditions = vec![doc! { "_id": { "$type": "string" } }];
        match self {
            Self::Names(names) => return one_of_these(names, "_id"),
            Self::Filter(filter) => conditions.extend(of_filter(filter)),
            Self::Taken(filter) => {
                conditions.extend(of_names(filter, "_id"));
                conditions.push(doc! { "lockId": { "$ne": "", "$not": begins_with(KEPT_PREFIX) } });
            }
            Self::Owner(owner) => conditions.push(doc! { "lockId": of_owner(KEPT_PREFIX, owner) }),
        }
        doc! { "$and": conditions }
    }

    /// Whether a document is one of these, by the same rules.
    pub(super) fn admits(&self, name: &str, sight: &Sight) -> bool {
        let id = sight.lock_id().unwrap_or_default();
        match self {
            Self::Names(names) => {
                let group = permit_id::awaited(name);
                names.iter().any(|own| **own == *name || **own == *group)
            }
            Self::Filter(filter) => info(name, sight, Duration::ZERO).is_ok_and(|info| filter.admits(&info)),
            Self::Taken(filter) => {
                filter.admits_name(permit_id::name(name)) && !lock_id::taken_by(id).is_empty()
            }
            Self::Owner(owner) => !lock_id::is_mark(id) && lock_id::owner(id) == Some(owner),
        }
    }
}

/// The condition for a field with the `_id` of one of these locks and permits, or of any permit of these groups.
pub(super) fn one_of_these(names: &[Name], field: &str) -> Document {
    let names = names.iter().map(AsRef::as_ref);
    let (groups, names): (Vec<&str>, Vec<&str>) = names.partition(|name| permit_id::is_group(name));
    let permits = |group: &str| {
        let end = permit_id::end_of_ids(&group[..group.len() - 1]);
        doc! { field: { "$gte": group, "$lt": end } }
    };
    let mut any = vec![doc! { field: { "$in": names } }];
    any.extend(groups.into_iter().map(permits));
    doc! { "$or": any }
}

/// The conditions of a filter, by the rules of [`LockFilter::admits`] and without the limit.
fn of_filter(filter: &LockFilter) -> Vec<Document> {
    let mut conditions = of_names(filter, "_id");
    if let Some(owner) = &filter.owner {
        conditions.push(doc! { "lockId": of_owner(MARK_PREFIX, owner) });
    }
    let (mark, kept) = (begins_with(MARK_PREFIX), begins_with(KEPT_PREFIX));
    let claim = doc! { "$ne": "", "$not": begins_with(&format!("({MARK_PREFIX}|{KEPT_PREFIX})")) };
    let runs = by_server().runs(0);
    let is_over = doc! { "$not": &runs };
    conditions.extend(filter.state.map(|state| match state {
        LockState::Held => doc! { "lockId": claim, "$expr": runs },
        LockState::Expired => doc! { "lockId": claim, "$expr": is_over },
        LockState::Done => doc! { "lockId": mark, "$expr": runs },
        LockState::Released => doc! { "$or": [
            { "lockId": "" }, { "lockId": kept }, { "lockId": mark, "$expr": is_over },
        ] },
    }));
    conditions
}

/// The conditions of a filter for a field with the `_id` of a lock, or of a permit of a semaphore.
pub(super) fn of_names(filter: &LockFilter, field: &str) -> Vec<Document> {
    let name = filter.name.as_deref();
    let name = name.map(|name| one_of_these(&[Arc::from(name), permit_id::group(name)], field));
    let prefix = filter.prefix.as_ref();
    let prefix = prefix.map(|prefix| doc! { field: begins_with(&literally(prefix)) });
    name.into_iter().chain(prefix).collect()
}

/// The condition for the `lockId` of this owner's claims, also with this prefix.
fn of_owner(prefix: &str, owner: &str) -> Document {
    begins_with(&format!("({prefix})?{}#[^#]*$", literally(owner)))
}

/// The condition for a text that begins with this pattern.
fn begins_with(pattern: &str) -> Document {
    doc! { "$regex": format!("^{pattern}") }
}

/// The regular expression that matches exactly this text.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // The server refuses a pattern with a NUL byte in it.
            '\0' => pattern.push_str("\\x00"),
            // A backslash gives ASCII letters and digits a special meaning, and takes it from all other ASCII characters.
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => pattern.extend(['\\', c]),
            _ => pattern.push(c),
        }
    }
    pattern
}

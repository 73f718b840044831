//! What commands do with the claims of locks, by their content: a single claim is changed by a `findAndModify`, whatever changes.

use mongodb::bson::{Bson, Document};

/// What a command does with the claim of a lock, or with the claims of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// It acquires a lock that is free.
    Acquire,
    /// It resumes a detached lease.
    Resume,
    /// It renews a claim, or extends a detached lease.
    Renew,
    /// It gives the lease of a claim the id of a handle.
    Detach,
    /// It replaces a claim by the mark that its work is done.
    Mark,
    /// It releases a claim, or ends one by force.
    Release,
}

impl Purpose {
    /// The purpose of a command; `None` if it changes no claim, or guards a commit.
    pub fn of(command: &Document) -> Option<Self> {
        let pipeline = match &**command.keys().next()? {
            "findAndModify" => command.get_array("update"),
            "update" if !command.contains_key("autocommit") => {
                let statements = command.get_array("updates").ok()?;
                statements.first()?.as_document()?.get_array("u")
            }
            _ => return None,
        };
        let stage = pipeline.ok()?.first()?.as_document()?;
        Self::of_changed(stage.get_document("$set").ok().or_else(|| merged(stage))?)
    }

    fn of_changed(changed: &Document) -> Option<Self> {
        let has_literal = |id: &Document| id.contains_key("$literal");
        match (changed.get("lockId"), changed.get("acquiredAt")) {
            // A forced release writes all fields of a damaged document.
            (None, _) if changed.contains_key("$cond") => Some(Self::Release),
            (None, _) if changed.keys().eq(["expiresAt"]) => Some(Self::Renew),
            (Some(Bson::String(id)), _) if id.is_empty() => Some(Self::Release),
            (Some(Bson::Document(id)), begun) if has_literal(id) => Some(match begun.map(Bson::as_str) {
                None => Self::Detach,
                Some(Some("$acquiredAt")) => Self::Resume,
                Some(_) => Self::Acquire,
            }),
            (Some(id), _) if id.to_string().contains("done:") => Some(Self::Mark),
            (Some(id), _) if id.to_string().contains("kept:") => Some(Self::Release),
            _ => None,
        }
    }
}

/// The fields that a stage writes if its condition holds.
fn merged(stage: &Document) -> Option<&Document> {
    let new = stage.get_document("$replaceWith").ok()?;
    let changed = if let Ok(branches) = new.get_array("$cond") {
        branches.get(1)?.as_document()?
    } else {
        let branches = new.get_document("$switch").ok()?.get_array("branches").ok()?;
        branches.first()?.as_document()?.get_document("then").ok()?
    };
    changed.get_array("$mergeObjects").ok()?.get(1)?.as_document()
}

/// What is known of a command that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) name: String,
    purpose: Option<Purpose>,
}

impl Seen {
    /// `None` for an empty document.
    pub(crate) fn of(command: &Document) -> Option<Self> {
        Some(Self {
            name: command.keys().next()?.clone(),
            purpose: Purpose::of(command),
        })
    }
}

/// Which commands a test means.
#[derive(Clone, Debug)]
pub enum Meant {
    /// Those of this name, as the server knows it: `findAndModify`, `update`, `find`, and so on.
    Name(String),
    /// Those that do this with claims, alone or together.
    Purpose(Purpose),
}

impl Meant {
    pub(crate) fn includes(&self, seen: &Seen) -> bool {
        match self {
            Self::Name(name) => *name == seen.name,
            Self::Purpose(purpose) => Some(*purpose) == seen.purpose,
        }
    }
}

impl From<&str> for Meant {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<Purpose> for Meant {
    fn from(purpose: Purpose) -> Self {
        Self::Purpose(purpose)
    }
}

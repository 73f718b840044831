//! Documents that cannot be read as locks: their holders, and their release.

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;
use mongolock::FencingToken;

use crate::connection::Collections;
use crate::driver;
use crate::failure::Failure;
use crate::ids;
use crate::json::rfc3339;
use crate::text::{escaped, release_command};

/// A document with a field that is missing or has the wrong type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DamagedDocument {
    document: Document,
}

impl DamagedDocument {
    /// The damaged documents of this lock, and of the permits of the semaphore of this name.
    pub(crate) async fn of(collections: &Collections, name: &str) -> Result<Vec<Self>, Failure> {
        let permits = doc! { "$gt": ids::any_permit(name), "$lt": ids::after_permits(name) };
        let unlike = |field: &str, wanted: &str| doc! { field: { "$not": { "$type": wanted } } };
        let is_damaged = [
            unlike("lockId", "string"),
            unlike("acquiredAt", "date"),
            unlike("expiresAt", "date"),
            unlike("fencingToken", "long"),
        ];
        let wanted = doc! { "$and": [
            { "$or": [{ "_id": name }, { "_id": permits }] },
            { "$or": is_damaged.to_vec() },
        ] };
        // A document that no majority has confirmed yet may be released as well.
        let found = collections.locks.find(wanted).sort(doc! { "_id": 1 });
        let found = found.read_concern(ReadConcern::local());
        let documents = driver::all(found.await).await?;
        Ok(documents.into_iter().map(|document| Self { document }).collect())
    }

    fn id(&self) -> &str {
        self.document.get_str("_id").unwrap_or_default()
    }

    /// The number of the permit.
    pub(crate) fn permit(&self) -> Option<u32> {
        ids::name_and_permit(self.id()).1
    }

    fn name(&self) -> &str {
        ids::name_and_permit(self.id()).0
    }

    /// The name, and the number of a permit.
    pub(crate) fn shown(&self) -> String {
        match self.permit() {
            Some(number) => format!("{} #{number}", escaped(self.name())),
            None => escaped(self.name()).into_owned(),
        }
    }

    /// The holder in the document: a process may still work under the lock.
    pub(crate) fn holder(&self) -> String {
        let shown = |key: &str| match self.document.get(key) {
            None => "none".to_owned(),
            Some(Bson::DateTime(time)) => rfc3339(*time),
            Some(value) => value.clone().into_relaxed_extjson().to_string(),
        };
        format!("lockId {}, expiresAt {}", shown("lockId"), shown("expiresAt"))
    }

    /// Whether it is the mark of finished work, which only `--done` clears.
    pub(crate) fn is_done(&self) -> bool {
        self.document.get_str("lockId").is_ok_and(ids::is_done)
    }

    pub(crate) fn has_token(&self, token: i64) -> bool {
        self.document.get_i64("fencingToken") == Ok(token)
    }

    /// The command that repairs it.
    pub(crate) fn mend(&self) -> String {
        release_of(self.name(), self.permit(), self.is_done())
    }

    /// Repairs it, if it is unchanged.
    pub(crate) async fn release(&self, collections: &Collections) -> Result<bool, Failure> {
        let name = self.name();
        if !Self::of(collections, name).await?.contains(self) {
            return Ok(false);
        }
        let mut request = collections.provider.admin().force_release(name);
        if let Some(number) = self.permit() {
            request = request.permit(number);
        }
        if let Ok(token) = self.document.get_i64("fencingToken") {
            request = request.only_if(FencingToken::from(token));
        }
        Ok(request.await?)
    }
}

/// The command that releases a lock or permit, or removes a mark.
pub(crate) fn release_of(name: &str, permit: Option<u32>, is_done: bool) -> String {
    let permit = permit.map(|number| format!(" --permit {number}"));
    let done = if is_done { " --done" } else { "" };
    let command = release_command(name, &format!("{}{done}", permit.unwrap_or_default()));
    format!("at the shell, only if no process works under it: {command}")
}

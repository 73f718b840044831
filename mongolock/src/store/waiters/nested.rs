//! What callers hold that wait for something else: by that a deadlock is found.
//!
//! The mark of a hold's provider is in its `lockId`, and the `_id` of a document begins with the mark of its provider. So the
//! documents that may list a hold are a range of `_id`, and no index of their own is needed. A provider whose callers run inside
//! a hold of another one, in the same process or in another one (`MONGOLOCK_HOLDS`), has another mark. It writes a document into
//! that range that only names its own mark.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, RawDocument, doc};
use mongodb::options::ReadConcern;

use super::mongo::kept;
use super::{Holders, NestedWait, ProviderMark, holders};
use crate::LockError;
use crate::store::Looked;
use crate::store::mongo::MongoStore;

/// What stands between the two marks of a document that names another one: no lock has a name that begins with it.
const SEPARATOR: char = '\u{1f}';

/// The largest number of documents that one query returns.
const MOST: i64 = 1000;

impl MongoStore {
    pub(crate) async fn holders(&self, names: &[Arc<str>], limit: Duration) -> Result<Holders, LockError> {
        let looked = self.look(Looked::Awaited(names), Duration::ZERO, limit);
        Ok(holders(looked.await?))
    }

    pub(crate) async fn nested_waits(
        &self,
        holds: &[Arc<str>],
        limit: Duration,
    ) -> Result<Vec<NestedWait>, LockError> {
        let marks = marks(holds).map(str::to_owned).collect();
        let (mut waits, inside) = self.waits_of(marks, holds, limit).await?;
        if !inside.is_empty() {
            waits.extend(self.waits_of(inside, holds, limit).await?.0);
        }
        Ok(waits)
    }

    /// The waits of these providers that list one of these holds, and the marks of processes that run inside them.
    async fn waits_of(
        &self,
        marks: BTreeSet<String>,
        holds: &[Arc<str>],
        limit: Duration,
    ) -> Result<(Vec<NestedWait>, BTreeSet<String>), LockError> {
        let (mut waits, mut inside) = (Vec::new(), BTreeSet::new());
        if marks.is_empty() {
            return Ok((waits, inside));
        }
        let ranges = marks.iter().map(|mark| {
            // `;` is the character after `:`.
            doc! { "_id": { "$gte": format!("{mark}:"), "$lt": format!("{mark};") } }
        });
        let holds: Vec<&str> = holds.iter().map(AsRef::as_ref).collect();
        let listing = [
            doc! { "holds": { "$in": holds } },
            doc! { "inside": { "$exists": true } },
        ];
        let either = [
            doc! { "$or": ranges.collect::<Vec<Document>>() },
            doc! { "$or": &listing[..] },
        ];
        let mut found = self
            .waiters
            .find(doc! { "$and": &either[..], "$expr": { "$gt": ["$until", "$$NOW"] } })
            .read_concern(ReadConcern::local())
            .limit(MOST)
            .max_time(limit)
            .await?;
        while found.advance().await? {
            let document = found.current();
            match document.get_str("inside") {
                Ok(mark) => drop(inside.insert(mark.to_owned())),
                Err(_) => waits.extend(nested_wait(document)),
            }
        }
        Ok((waits, inside))
    }

    pub(crate) async fn note_outer_holds(
        &self,
        provider: &ProviderMark,
        holds: &[Arc<str>],
        limit: Duration,
    ) -> Result<(), LockError> {
        let updates = marks(holds).map(|mark| {
            let id = format!("{mark}:{SEPARATOR}{}", provider.as_str());
            let stage = doc! { "$set": { "inside": provider.as_str(), "until": kept() } };
            doc! { "q": { "_id": id }, "u": [stage], "upsert": true }
        });
        let updates: Vec<Document> = updates.collect();
        if updates.is_empty() {
            return Ok(());
        }
        let command = doc! { "update": self.waiters.name(), "updates": updates, "ordered": false };
        self.write_hint(command, limit).await.map(drop)
    }
}

/// The marks of the providers of these holds, each once. A hold of another program and a detached lease have none.
fn marks(holds: &[Arc<str>]) -> impl Iterator<Item = &str> {
    let marks: BTreeSet<&str> = holds
        .iter()
        .filter_map(|hold| ProviderMark::in_lock_id(hold))
        .collect();
    marks.into_iter()
}

/// The wait in one document; `None` if the document is damaged, or if nobody waits there now.
fn nested_wait(document: &RawDocument) -> Option<NestedWait> {
    let holds = document.get_array("holds").ok()?.into_iter();
    let holds = holds.filter_map(|hold| Some(Arc::from(hold.ok()?.as_str()?)));
    Some(NestedWait {
        provider: Arc::from(document.get_str("provider").ok()?),
        name: Arc::from(document.get_str("name").ok()?),
        since: document.get_datetime("holds_since").ok()?,
        holds: holds.collect(),
    })
}

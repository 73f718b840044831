//! The floors: the two commands of an uncontended hold, sent by the driver alone.

use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, CollectionOptions, ReadPreference, SelectionCriteria, WriteConcern};
use mongodb::{Collection, Database};

const EXPIRY_MILLIS: i64 = 30_000;
const LIMIT_MILLIS: i64 = 5_000;
const LOCK_ID: &str = "holder.example:12345#67e55044-10b1-426f-9247-bb680e5fe0c8";

/// The commands of mongolock: the same documents, options and write concern in the same collection, but without ids of
/// their own, queue, renewal, or a task for the request.
#[derive(Clone)]
pub(crate) struct Own(Database);

impl Own {
    pub(crate) fn new(database: &Database) -> Self {
        Self(database.clone())
    }

    pub(crate) async fn acquire(&self, name: &str) -> anyhow::Result<()> {
        self.run(name, claim(), true).await
    }

    pub(crate) async fn release(&self, name: &str) -> anyhow::Result<()> {
        let is_mine = doc! { "$eq": ["$lockId", { "$literal": LOCK_ID }] };
        let released = doc! { "lockId": "", "expiresAt": "$$NOW" };
        self.run(name, replaced_if(is_mine, released), false).await
    }

    /// Changes a document, which a claim may make. The reply has it as it is after a claim, and as it was before a release.
    async fn run(&self, name: &str, update: Document, is_claim: bool) -> anyhow::Result<()> {
        let command = doc! {
            "findAndModify": "distributed_locks",
            "query": { "_id": name },
            "update": [update],
            "upsert": is_claim,
            "new": is_claim,
            "fields": { "lockId": 1, "acquiredAt": 1, "expiresAt": 1, "fencingToken": 1, "now": "$$NOW" },
            "writeConcern": { "w": "majority" },
            "maxTimeMS": LIMIT_MILLIS,
        };
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let reply = self.0.run_command(command).selection_criteria(primary).await?;
        let is_mine = reply.get_document("value")?.get_str("lockId")? == LOCK_ID;
        anyhow::ensure!(is_mine, "another client uses the name {name}");
        Ok(())
    }
}

/// The stage that changes these fields if the condition holds, and nothing otherwise.
fn replaced_if(condition: Document, changed: Document) -> Document {
    let merged = doc! { "$mergeObjects": ["$$ROOT", changed] };
    doc! { "$replaceWith": { "$cond": [condition, merged, "$$ROOT"] } }
}

fn claim() -> Document {
    let free = doc! { "$or": [{ "$eq": ["$lockId", ""] }, { "$lte": ["$expiresAt", "$$NOW"] }] };
    let next_token = doc! { "$max": [
        { "$add": ["$fencingToken", 1_i64] },
        { "$multiply": [{ "$toLong": "$$NOW" }, 1000_i64] },
    ] };
    let taken = doc! {
        "lockId": { "$literal": LOCK_ID },
        "acquiredAt": "$$NOW",
        "expiresAt": { "$add": ["$$NOW", EXPIRY_MILLIS] },
        "fencingToken": { "$add": [next_token, 0_i64] },
    };
    replaced_if(free, taken)
}

/// The two cheapest commands with majority write concern that any lock could use: an insert, which fails while another
/// client has the lock, and the deletion of the document. They keep no fencing token, take over no lock that has expired,
/// and there is no TTL index.
#[derive(Clone)]
pub(crate) struct Cheapest(Collection<Document>);

impl Cheapest {
    pub(crate) fn new(database: &Database) -> Self {
        let majority = WriteConcern::builder().w(Acknowledgment::Majority).build();
        let options = CollectionOptions::builder().write_concern(majority).build();
        Self(database.collection_with_options("cheapest_locks", options))
    }

    pub(crate) async fn acquire(&self, name: &str) -> anyhow::Result<()> {
        self.0.insert_one(doc! { "_id": name, "lockId": LOCK_ID }).await?;
        Ok(())
    }

    pub(crate) async fn release(&self, name: &str) -> anyhow::Result<()> {
        let mine = doc! { "_id": name, "lockId": LOCK_ID };
        let deleted = self.0.delete_one(mine).await?.deleted_count;
        anyhow::ensure!(deleted == 1, "another client uses the name {name}");
        Ok(())
    }
}

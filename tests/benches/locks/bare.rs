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
        let claim = doc! {
            "findAndModify": "distributed_locks",
            "query": { "_id": name },
            "update": [claim()],
            "upsert": true,
            "new": true,
            "fields": {
                "_id": 0, "lockId": 1, "fencingToken": 1,
                "remainingMs": { "$subtract": ["$expiresAt", "$$NOW"] },
            },
        };
        let reply = self.run(claim).await?;
        let is_mine = reply.get_document("value")?.get_str("lockId")? == LOCK_ID;
        anyhow::ensure!(is_mine, "another client uses the name {name}");
        Ok(())
    }

    pub(crate) async fn release(&self, name: &str) -> anyhow::Result<()> {
        let release = doc! {
            "update": "distributed_locks",
            "updates": [{
                "q": { "_id": name, "lockId": LOCK_ID },
                "u": [{ "$set": { "lockId": "", "expiresAt": "$$NOW" } }],
                "multi": true,
            }],
        };
        let reply = self.run(release).await?;
        anyhow::ensure!(reply.get_i32("n")? == 1, "another client uses the name {name}");
        Ok(())
    }

    async fn run(&self, mut command: Document) -> anyhow::Result<Document> {
        command.insert("writeConcern", doc! { "w": "majority" });
        command.insert("maxTimeMS", LIMIT_MILLIS);
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        Ok(self.0.run_command(command).selection_criteria(primary).await?)
    }
}

fn claim() -> Document {
    let free = doc! { "$lte": ["$expiresAt", "$$NOW"] };
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
    let merged = doc! { "$mergeObjects": ["$$ROOT", taken] };
    doc! { "$replaceWith": { "$cond": [free, merged, "$$ROOT"] } }
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

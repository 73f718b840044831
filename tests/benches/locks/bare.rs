//! The baseline: the commands of an uncontended hold, sent by the driver alone.

use std::time::{Duration, Instant};

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Acknowledgment, CollectionOptions, ReturnDocument, WriteConcern};
use mongodb::{Collection, Database};

use crate::samples::Samples;

/// The time for which the lease lasts, in milliseconds, as with the default expiry of mongolock.
const EXPIRY_MILLIS: i64 = 30_000;
/// The limit of a command at the server.
const LIMIT: Duration = Duration::from_secs(5);

/// A lock that is acquired and released with the same documents, options and write concern as mongolock's, in the same
/// collection, but without a new id for each acquisition, a queue, a renewal and a task for the request.
#[derive(Clone)]
pub(crate) struct Bare {
    locks: Collection<Document>,
    name: String,
    lock_id: String,
}

impl Bare {
    pub(crate) fn new(database: &Database, name: impl Into<String>) -> Self {
        let options = CollectionOptions::builder().write_concern(majority(None)).build();
        Self {
            locks: database.collection_with_options("distributed_locks", options),
            name: name.into(),
            lock_id: "host.example:12345#67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned(),
        }
    }

    pub(crate) async fn acquire(&self) -> anyhow::Result<()> {
        let taken = self
            .locks
            .find_one_and_update(doc! { "_id": &*self.name }, vec![self.claim()])
            .upsert(true)
            .return_document(ReturnDocument::After)
            .projection(doc! {
                "_id": 0, "lockId": 1, "fencingToken": 1,
                "remainingMs": { "$subtract": ["$expiresAt", "$$NOW"] },
            })
            .max_time(LIMIT)
            .await?;
        let mine = taken.is_some_and(|taken| taken.get_str("lockId").ok() == Some(&self.lock_id));
        anyhow::ensure!(mine, "another client uses the name");
        Ok(())
    }

    pub(crate) async fn release(&self) -> anyhow::Result<()> {
        let mine = doc! { "_id": &*self.name, "lockId": &*self.lock_id };
        self.locks
            .update_one(
                mine,
                vec![doc! { "$set": { "lockId": "", "expiresAt": "$$NOW" } }],
            )
            .write_concern(majority(Some(LIMIT)))
            .await?;
        Ok(())
    }

    /// The durations of single commands, which acquire and release the lock in turn.
    pub(crate) async fn commands(&self, pairs: usize) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..pairs {
            let begun = Instant::now();
            self.acquire().await?;
            let taken = Instant::now();
            self.release().await?;
            samples.extend([taken - begun, taken.elapsed()]);
        }
        Ok(samples)
    }

    fn claim(&self) -> Document {
        let if_free =
            |taken: Bson, old: &str| doc! { "$cond": [{ "$lte": ["$expiresAt", "$$NOW"] }, taken, old] };
        let next_token = doc! { "$max": [
            { "$add": ["$fencingToken", 1_i64] },
            { "$multiply": [{ "$toLong": "$$NOW" }, 1000_i64] },
        ] };
        doc! { "$set": {
            "lockId": if_free(doc! { "$literal": &*self.lock_id }.into(), "$lockId"),
            "acquiredAt": if_free("$$NOW".into(), "$acquiredAt"),
            "expiresAt": if_free(doc! { "$add": ["$$NOW", EXPIRY_MILLIS] }.into(), "$expiresAt"),
            "fencingToken": if_free(doc! { "$add": [next_token, 0_i64] }.into(), "$fencingToken"),
        } }
    }
}

fn majority(limit: Option<Duration>) -> WriteConcern {
    let mut concern = WriteConcern::builder().w(Acknowledgment::Majority).build();
    concern.w_timeout = limit;
    concern
}

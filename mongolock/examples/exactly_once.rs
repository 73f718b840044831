//! A scheduled job that takes effect exactly once: its writes and the mark of its tick are one transaction.
//!
//! ```text
//! MONGODB_URI=mongodb://localhost/?replicaSet=rs0 cargo run -p mongolock --example exactly_once
//! ```
//!
//! It needs a MongoDB with transactions: a replica set or a sharded cluster. It works in the collection
//! `exactly_once_example`, which it drops at the end. In production the three instances are
//! processes.

use std::env;
use std::process::ExitCode;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use mongodb::options::WriteConcern;
use mongodb::{Client, Collection};
use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

type Accounts = Collection<Document>;

/// Returns `None` if the interest of this tick is paid already.
///
/// A process that is killed before the commit has paid nothing, and another instance pays. After the commit none pays again:
/// there is no moment at which the interest is paid and the tick is not marked.
#[distributed_lock(name = "interest:<tick>", once = true, provider = locks)]
async fn pay_interest(
    locks: &LockProvider,
    accounts: &Accounts,
    tick: &str,
    #[lock] lock: LockContext,
) -> Result<Option<u64>, LockError> {
    let mut session = accounts.client().start_session().await?;
    let transaction = session
        .start_transaction()
        .write_concern(WriteConcern::majority());
    // The driver repeats the whole closure after transient errors.
    let paid = transaction.and_run2(async |session| {
        let update = doc! { "$inc": { "balance": 1 } };
        let paid = accounts
            .update_many(doc! {}, update)
            .session(&mut *session)
            .await?;
        // The last step commits the writes together with the mark.
        lock.commit_done(session).await?;
        Ok(paid.modified_count)
    });
    Ok(Some(paid.await?))
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Ok(uri) = env::var("MONGODB_URI") else {
        eprintln!(
            "This example needs a replica set: set MONGODB_URI, for instance to mongodb://localhost/?replicaSet=rs0"
        );
        return Ok(ExitCode::FAILURE);
    };
    let client = Client::with_uri_str(uri).await?;
    let database = client
        .default_database()
        .unwrap_or_else(|| client.database("mongolock"));
    let accounts: Accounts = database.collection("exactly_once_example");
    let instance = async |number, tick| {
        // A provider of its own is what another process would have.
        let locks = LockProvider::new(&database);
        match pay_interest(&locks, &accounts, tick).await {
            Ok(Some(paid)) => println!("instance {number} has paid into {paid} accounts"),
            Ok(None) => println!("instance {number} finds the interest paid"),
            Err(error) => eprintln!("instance {number} failed: {error}"),
        }
        locks.shutdown().await;
    };
    accounts.drop().await?;
    accounts
        .insert_many([1, 2].map(|id| doc! { "_id": id, "balance": 100_i64 }))
        .await?;

    // The tick is the scheduled time, which all instances have in common. This one is new in each run.
    let tick = ObjectId::new().to_hex();
    tokio::join!(instance(1, &tick), instance(2, &tick), instance(3, &tick));
    let total = accounts.count_documents(doc! { "balance": 101 }).await?;
    println!("{total} accounts have 101");

    accounts.drop().await?;
    client.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

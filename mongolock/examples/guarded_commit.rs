//! A guarded commit: a transaction over several documents is committed only if its lock is still held.
//!
//! ```text
//! MONGODB_URI=mongodb://localhost/?replicaSet=rs0 cargo run -p mongolock --example guarded_commit
//! ```
//!
//! It needs a MongoDB with transactions: a replica set or a sharded cluster. It works in the collection
//! `guarded_commit_example`, which it drops at the end.

use std::env;
use std::process::ExitCode;

use mongodb::bson::{Document, doc};
use mongodb::options::WriteConcern;
use mongodb::{Client, Collection};
use mongolock::{LockContext, LockError, LockProvider};

type Accounts = Collection<Document>;

/// Moves money between two accounts: both balances change, or none does.
async fn transfer(lock: &LockContext, accounts: &Accounts, amount: i64) -> Result<(), LockError> {
    let mut session = accounts.client().start_session().await?;
    let transaction = session
        .start_transaction()
        .write_concern(WriteConcern::majority());
    // The driver repeats the whole closure after transient errors.
    let moved = transaction.and_run2(async move |session| {
        for (account, change) in [(1, -amount), (2, amount)] {
            let update = doc! { "$inc": { "balance": change } };
            accounts
                .update_one(doc! { "_id": account }, update)
                .session(&mut *session)
                .await?;
        }
        // The last statement of the transaction changes the lock's own document: a newer holder is a conflict.
        Ok(lock.commit(session).await?)
    });
    Ok(moved.await?)
}

async fn print_balances(accounts: &Accounts) -> anyhow::Result<()> {
    for account in [1, 2] {
        let found = accounts
            .find_one(doc! { "_id": account })
            .await?
            .unwrap_or_default();
        println!("  account {account} has {}", found.get_i64("balance")?);
    }
    Ok(())
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
    let accounts: Accounts = database.collection("guarded_commit_example");
    accounts.drop().await?;
    accounts
        .insert_many([1, 2].map(|id| doc! { "_id": id, "balance": 100_i64 }))
        .await?;
    let (ours, theirs) = (LockProvider::new(&database), LockProvider::new(&database));

    let holder = ours.lock("guarded_commit_example").await?;
    transfer(&holder.context(), &accounts, 30).await?;
    println!("the holder has moved 30:");
    print_balances(&accounts).await?;

    // Another process takes the lock over, as after a pause of the holder, which does not know of it.
    theirs.admin().force_release("guarded_commit_example").await?;
    let _next = theirs.lock("guarded_commit_example").await?;
    match transfer(&holder.context(), &accounts, 50).await {
        Err(LockError::Lost { .. }) => println!("the lock was lost, so the transfer of 50 is not committed:"),
        outcome => println!("not refused: {outcome:?}"),
    }
    print_balances(&accounts).await?;

    accounts.drop().await?;
    ours.shutdown().await;
    theirs.shutdown().await;
    client.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

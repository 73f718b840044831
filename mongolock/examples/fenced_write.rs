//! Never lose an update: a holder that was paused beyond its lease cannot overwrite the work of the next holder.
//!
//! ```text
//! MONGODB_URI=mongodb://localhost/app cargo run -p mongolock --example fenced_write
//! ```
//!
//! It needs a MongoDB, which refuses the stale write. It works in the collection `fenced_write_example`, which it drops.
//! A copy in `src/main.rs` needs `cargo add mongolock mongodb anyhow tokio --features tokio/full`.

use std::env;

use anyhow::Context;
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use mongolock::{FencedExt, FencingToken, LockError, LockProvider};

/// Compares the token and writes in one atomic command. The document keeps the greatest token that it has seen.
async fn set_title(reports: &Collection<Document>, by: FencingToken, title: &str) -> Result<(), LockError> {
    let update = doc! { "$set": { "title": title } };
    let reports = reports.fenced(by);
    reports
        .update_one(doc! { "_id": 42 }, update)
        .upsert(true)
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let uri = env::var("MONGODB_URI").context("set MONGODB_URI, for instance to mongodb://localhost/app")?;
    let client = Client::with_uri_str(uri).await?;
    let database = client
        .default_database()
        .context("MONGODB_URI names no database")?;
    let reports: Collection<Document> = database.collection("fenced_write_example");
    // Each process has a provider. Here both are in one process.
    let (ours, theirs) = (LockProvider::new(&database), LockProvider::new(&database));

    let paused = ours.lock("fenced_write_example:42").await?;
    println!("holder 1 has token {}, and is paused", paused.fencing_token());

    // Ends the lease as its expiry would, without the wait. Holder 1 does not know of it.
    theirs.admin().force_release("fenced_write_example:42").await?;
    let next = theirs.lock("fenced_write_example:42").await?;
    set_title(&reports, next.fencing_token(), "by holder 2").await?;
    println!("holder 2 has token {}, and has written", next.fencing_token());
    next.release().await?;

    // Holder 1 goes on where it was paused.
    let stale = set_title(&reports, paused.fencing_token(), "by holder 1").await;
    println!("holder 1 gets: {}", stale.expect_err("MongoDB refuses the write"));
    let report = reports.find_one(doc! { "_id": 42 }).await?.unwrap_or_default();
    println!("the title is \"{}\"", report.get_str("title")?);

    reports.drop().await?;
    ours.shutdown().await;
    theirs.shutdown().await;
    client.shutdown().await;
    Ok(())
}

//! A fenced write: a holder that was paused beyond its lease cannot overwrite the work of the next holder.
//!
//! ```text
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example fenced_write
//! ```
//!
//! It needs a MongoDB, because the data refuses the stale write there. It works in the collection
//! `fenced_write_example`, which it drops at the end.

use std::env;
use std::process::ExitCode;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use mongolock::{FencedExt, FencingToken, LockError, LockProvider};

/// Compares the token and writes in one atomic command. The document keeps the greatest token that it has seen, in the
/// field `fencingToken`.
async fn set_title(
    reports: &Collection<Document>,
    token: FencingToken,
    title: &str,
) -> Result<(), LockError> {
    let update = doc! { "$set": { "title": title } };
    reports
        .fenced(token)
        .update_one(doc! { "_id": 42 }, update)
        .upsert(true)
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Ok(uri) = env::var("MONGODB_URI") else {
        eprintln!("This example needs a MongoDB: set MONGODB_URI, for instance to mongodb://localhost");
        return Ok(ExitCode::FAILURE);
    };
    let client = Client::with_uri_str(uri).await?;
    let database = client
        .default_database()
        .unwrap_or_else(|| client.database("mongolock"));
    let reports: Collection<Document> = database.collection("fenced_write_example");
    let (ours, theirs) = (LockProvider::new(&database), LockProvider::new(&database));

    let paused = ours.lock("fenced_write_example:42").await?;
    println!(
        "holder 1 has token {}, and its process is paused",
        paused.fencing_token()
    );

    // Ends the lease as its expiry would, without the wait. Holder 1 does not know of it.
    theirs.admin().force_release("fenced_write_example:42").await?;
    let next = theirs.lock("fenced_write_example:42").await?;
    set_title(&reports, next.fencing_token(), "by holder 2").await?;
    println!("holder 2 has token {}, and has written", next.fencing_token());
    next.release().await?;

    // Holder 1 goes on where it was paused.
    match set_title(&reports, paused.fencing_token(), "by holder 1").await {
        Err(LockError::Stale { token, seen, .. }) => {
            println!("the write with {token} is refused: the report has seen {seen}");
        }
        outcome => println!("not refused: {outcome:?}"),
    }
    let report = reports.find_one(doc! { "_id": 42 }).await?.unwrap_or_default();
    println!("the title is \"{}\"", report.get_str("title")?);

    reports.drop().await?;
    ours.shutdown().await;
    theirs.shutdown().await;
    client.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

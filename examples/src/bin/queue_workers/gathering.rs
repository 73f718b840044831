//! The processes wait for each other, so that none has done all the work before the others have started.

use std::time::Duration;

use anyhow::Context;
use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock_tests::eventually;

/// Starting a process takes far less, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const COLLECTION: &str = "processes";

/// Says that a process is there.
pub(crate) async fn join(database: &Database, number: u32) -> anyhow::Result<()> {
    let process = doc! { "_id": number };
    let joined = database
        .collection::<Document>(COLLECTION)
        .insert_one(process)
        .await;
    joined.map(drop).context("cannot join the other processes")
}

/// Waits until so many processes are there.
pub(crate) async fn complete(database: &Database, number: u32) -> anyhow::Result<()> {
    let processes = database.collection::<Document>(COLLECTION);
    let enough = || async {
        let there = processes.count_documents(doc! {}).await;
        there
            .map(|there| (there >= u64::from(number)).then_some(()))
            .transpose()
    };
    let what = format!("start of {number} processes");
    eventually(LIMIT, &what, enough)
        .await?
        .context("cannot count the processes")
}

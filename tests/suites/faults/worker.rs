//! The tasks of one of several processes that compete for a lock.

use std::time::{Duration, Instant};

use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock::LockProvider;
use tokio::task::JoinSet;

/// The lock for which the processes compete.
pub(crate) const NAME: &str = "worked";

/// The document in which the holders write that they are in their section.
const SECTION: &str = "section";

/// Creates the document of the section, before the processes start.
pub(crate) async fn prepare(database: &Database) {
    let section = doc! { "_id": SECTION, "isInside": false, "token": 0_i64 };
    sections(database).insert_one(section).await.unwrap();
}

fn sections(database: &Database) -> mongodb::Collection<Document> {
    database.collection("sections")
}

/// Has this number of tasks use the lock again and again, until the process is ended. Each turn is a line on the standard
/// output: `@ turn <task> <token> <milliseconds waited>`. A holder that is not alone, or whose token is not greater than
/// all before, prints `@ breach`.
pub(crate) async fn work(provider: LockProvider, database: Database, tasks: usize) {
    let mut working = JoinSet::new();
    for task in 0..tasks {
        let (provider, database) = (provider.clone(), database.clone());
        working.spawn(async move {
            loop {
                take_turn(&provider, &database, task).await;
            }
        });
    }
    working.join_all().await;
}

async fn take_turn(provider: &LockProvider, database: &Database, task: usize) {
    let asked = Instant::now();
    let lock = provider.lock(NAME).acquire_timeout(None);
    let guard = lock.acquire().await.unwrap();
    let waited = asked.elapsed().as_millis();
    let token = guard.fencing_token().get();
    be_inside(database, task, token).await;
    guard.release().await.unwrap();
    println!("@ turn {task} {token} {waited}");
}

/// Is in the section for a moment, under a hold with this token.
async fn be_inside(database: &Database, task: usize, token: i64) {
    let sections = sections(database);
    let alone = doc! { "_id": SECTION, "isInside": false, "token": { "$lt": token } };
    let inside = doc! { "$set": { "isInside": true, "token": token } };
    let entered = sections.update_one(alone, inside).await.unwrap();
    if entered.matched_count == 0 {
        println!("@ breach task {task} with token {token}");
    }
    tokio::time::sleep(Duration::from_millis(3)).await;
    let outside = doc! { "$set": { "isInside": false } };
    sections
        .update_one(doc! { "_id": SECTION }, outside)
        .await
        .unwrap();
}

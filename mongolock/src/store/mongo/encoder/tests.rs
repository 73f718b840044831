//! The server changes documents as [`apply`] does: both run random rows on random documents.
//!
//! `MONGOLOCK_SEED=7` makes other random rows.

mod case;
mod clock;
mod draw;

use std::collections::BTreeMap;

use fastrand::Rng;
use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use mongolock_tests::test_db;
use tokio::task::JoinSet;

use self::case::{Case, Effect, shown};
use self::draw::{DAMAGED, GROUPS, SOUND, damages, rows, seed, time};

/// The number of pairs of each kind of rows and each sound kind of documents, and the least number of documents that each kind
/// of rows changes.
const PAIRS: usize = 20;

/// The number of commands of several rows of each kind.
const COMMANDS: usize = 50;

/// The number of commands that run at the same time.
const WORKERS: usize = 8;

/// The collection.
const LOCKS: &str = "locks";

/// Writes the documents of these cases.
async fn write(database: &Database, cases: &[Case]) {
    let locks = database.collection::<Document>(LOCKS);
    let deleted = locks.delete_many(doc! {}).await;
    deleted.expect("the documents of earlier cases are deleted");
    let pairs = cases
        .iter()
        .flat_map(|case| case.rows.iter().zip(&case.documents));
    let named = pairs.filter_map(|(row, document)| {
        let mut named = doc! { "_id": &*row.name };
        named.extend(document.clone()?);
        Some(named)
    });
    let documents: Vec<Document> = named.collect();
    if !documents.is_empty() {
        let written = locks.insert_many(documents).await;
        written.expect("the documents are written");
    }
}

/// All documents, by their names.
async fn read(database: &Database) -> BTreeMap<String, Document> {
    let query = doc! { "find": LOCKS, "batchSize": i32::MAX, "singleBatch": true };
    let mut reply = database.run_command(query).await.expect("the documents are read");
    let cursor = reply.get_document_mut("cursor").expect("a reply has a cursor");
    let batch = cursor.get_array_mut("firstBatch").map(std::mem::take);
    let batch = batch.expect("a cursor has a batch");
    let named = batch.into_iter().filter_map(|found| match found {
        Bson::Document(document) => Some((document.get_str("_id").ok()?.to_owned(), document)),
        _ => None,
    });
    named.collect()
}

/// Runs the commands of these cases, and returns the effect of each.
async fn run(database: &Database, cases: Vec<Case>) -> Vec<(Case, Effect)> {
    write(database, &cases).await;
    let mut shares: Vec<Vec<Case>> = (0..WORKERS).map(|_| Vec::new()).collect();
    for (index, case) in cases.into_iter().enumerate() {
        shares[index % WORKERS].push(case);
    }
    let mut workers = JoinSet::new();
    for share in shares {
        let database = database.clone();
        workers.spawn(async move {
            let mut ran = Vec::new();
            for case in share {
                let mut command = case.command.clone();
                command.insert("writeConcern", doc! { "w": 1 });
                let effect = case.effect_of(database.run_command(command).await);
                ran.push((case, effect));
            }
            ran
        });
    }
    let mut ran: Vec<(Case, Effect)> = workers.join_all().await.into_iter().flatten().collect();
    let found = read(database).await;
    for (case, effect) in &mut ran {
        let names = case.rows.iter().map(|row| &*row.name);
        effect.documents = names.map(|name| shown(found.get(name))).collect();
    }
    ran
}

/// Asserts that the effects are those of [`apply`].
fn assert_agreement(ran: &[(Case, Effect)]) {
    let differences = ran.iter().filter_map(|(case, effect)| case.difference(effect));
    let differences: Vec<String> = differences.collect();
    let (count, all) = (differences.len(), ran.len());
    let first = differences[..count.min(3)].join("\n");
    assert!(count == 0, "{count} of {all} differ:\n{first}");
}

#[tokio::test]
async fn a_row_has_the_same_effect_on_the_server() {
    let db = test_db().await;
    let mut rng = Rng::with_seed(seed());
    let mut cases = Vec::new();
    for row in rows() {
        for (documents, count) in [(SOUND, PAIRS), (DAMAGED, damages(0).len())] {
            for document in documents.split(", ") {
                let case = |number| Case::pair((row, document), number, time(&mut rng), &mut rng);
                cases.extend((0..count).map(case));
            }
        }
    }
    let ran = run(db.database(), cases).await;
    assert_agreement(&ran);
    for row in rows() {
        let of_row = ran.iter().filter(|(case, _)| case.kind.0 == row);
        let changed = of_row.filter(|(case, effect)| effect.documents != case.unchanged());
        assert!(changed.count() >= PAIRS, "{row}");
    }
}

#[tokio::test]
async fn several_rows_have_the_same_effects_on_the_server() {
    let db = test_db().await;
    let mut rng = Rng::with_seed(seed());
    let draw = |number| Case::group(number % GROUPS.len(), number, &mut rng);
    let cases: Vec<Case> = (0..GROUPS.len() * COMMANDS).map(draw).collect();
    let ran = run(db.database(), cases).await;
    assert_agreement(&ran);
}

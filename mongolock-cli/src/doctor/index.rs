//! The TTL index, which removes the documents of unused locks, and other indexes that remove documents. The text about
//! a problem with the index is that of the library.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongolock::IndexState;

use super::{Finding, READ_LIMIT, documents_of};
use crate::codes::{UNAUTHORIZED, code};
use crate::connection::Collections;
use crate::driver;

/// The time after its end for which a document may stay until the TTL monitor, which runs once a minute, deletes it.
const OVERDUE: Duration = Duration::from_secs(60 * 60);

/// The findings about the index, other indexes that delete documents, and the deletion. Nothing is created.
pub(super) async fn ttl_index(
    collections: &Collections,
    retention: Duration,
    state: &IndexState,
    hello: &Document,
) -> Vec<Finding> {
    let mut findings = vec![of_library(collections, retention, state)];
    findings.extend(foreign(collections).await);
    if let (IndexState::Ready, Ok(now)) = (state, hello.get_datetime("localTime")) {
        findings.push(monitor(collections, retention, *now).await);
    }
    findings
}

/// Other indexes that delete documents. The driver would not read one whose time is no whole number.
async fn foreign(collections: &Collections) -> Vec<Finding> {
    let locks = collections.locks.name();
    let list = collections.database.run_command(doc! { "listIndexes": locks });
    // Where the user may not list them, the finding about the index of the library says so.
    let listed = list.await.unwrap_or_default();
    let cursor = listed.get_document("cursor").ok();
    let indexes = cursor
        .into_iter()
        .flat_map(|cursor| documents_of(cursor, "firstBatch"));
    let finding = |index: &Document| {
        let after = index.get("expireAfterSeconds")?;
        let field = index.get_document("key").ok()?.keys().next()?;
        let name = index.get_str("name").unwrap_or_default();
        let said = format!(
            "the index `{name}` deletes documents {after} s after their `{field}`, whether the lock is held or not"
        );
        let mend = format!("db.getCollection({locks:?}).dropIndex({name:?})");
        (field != "expiresAt").then(|| Finding::wrong("TTL index", said, mend))
    };
    indexes.filter_map(finding).collect()
}

/// Checks that the server deletes old documents.
async fn monitor(collections: &Collections, retention: Duration, now: DateTime) -> Finding {
    let check = "TTL monitor";
    let mend = "db.adminCommand({ setParameter: 1, ttlMonitorEnabled: true })";
    let parameter = doc! { "getParameter": 1, "ttlMonitorEnabled": 1 };
    let parameter = collections.admin.run_command(parameter).await;
    let is_on = parameter.map(|reply| reply.get_bool("ttlMonitorEnabled").unwrap_or(true));
    if matches!(is_on, Ok(false)) {
        let said = "it is off: the documents of unused locks are never deleted";
        return Finding::wrong(check, said, mend);
    }
    let latest =
        now.timestamp_millis() - i64::try_from((retention + OVERDUE).as_millis()).unwrap_or(i64::MAX);
    let overdue = doc! { "expiresAt": { "$lt": DateTime::from_millis(latest) } };
    match (
        collections.locks.find_one(overdue).max_time(READ_LIMIT).await,
        is_on,
    ) {
        (Ok(Some(document)), _) => {
            let id = document.get("_id").map_or_else(String::new, Bson::to_string);
            let said = format!("documents that are long over are not deleted, such as {id}");
            Finding::wrong(check, said, mend)
        }
        (Ok(None), Ok(_)) => Finding::ok(check, "it is on"),
        (Ok(None), Err(error)) if code(&error) == Some(UNAUTHORIZED) => {
            Finding::unknown(check, "this user may not see whether it is on")
        }
        (Ok(None), Err(error)) | (Err(error), _) => Finding::unknown(check, driver::text(&error)),
    }
}

/// What the library says about its index.
fn of_library(collections: &Collections, retention: Duration, state: &IndexState) -> Finding {
    let (check, said) = ("TTL index", state.to_string());
    let name = collections.locks.name();
    let collection = format!("db.getCollection({name:?})");
    let create = format!(
        "{collection}.createIndex({{ expiresAt: 1 }}, {{ name: \"expiresAt_ttl\", expireAfterSeconds: {} }})",
        retention.as_secs()
    );
    match state {
        IndexState::Ready | IndexState::NoCollection => Finding::ok(check, said),
        IndexState::Missing => Finding::wrong(check, said, create),
        IndexState::Conflict { index, .. } => {
            let mend = match index {
                // Providers with another retention than the requested one have created it.
                Some(index) => format!(
                    "/* only if the retention of the providers is {} s; else: mongolock doctor --retention TIME */ {collection}.dropIndex({index:?}); {create}",
                    retention.as_secs()
                ),
                None => format!("{collection}.getIndexes()"),
            };
            // The text of the library ends with a command as well.
            let said = said.split("; in mongosh: ").next().unwrap_or(&said);
            Finding::wrong(check, said, mend)
        }
        // Neither option of a collection can be changed.
        IndexState::Capped | IndexState::Collation { .. } => {
            let mend = format!("/* while no process uses the locks */ {collection}.drop(); {create}");
            Finding::wrong(check, said, mend)
        }
        IndexState::Unauthorized { .. } => {
            Finding::unknown(check, said).mend(super::rights::grant(collections, name, &["listIndexes"]))
        }
        _ => Finding::unknown(check, said),
    }
}

//! The TTL index, which removes the documents of unused locks. The library says what is wrong with it.

use mongolock::IndexState;

use super::Finding;
use crate::connection::Collections;

/// The finding about the index. The library reads it, and creates nothing.
pub(super) async fn ttl_index(collections: &Collections) -> Finding {
    let state = collections.provider.admin().inspect_index().await;
    let (check, said) = ("TTL index", state.to_string());
    let name = collections.locks.name();
    let collection = format!("db.getCollection({name:?})");
    let create = format!(
        "{collection}.createIndex({{ expiresAt: 1 }}, {{ name: \"expiresAt_ttl\", expireAfterSeconds: {} }})",
        collections.retention.as_secs()
    );
    match state {
        IndexState::Ready | IndexState::NoCollection => Finding::ok(check, said),
        IndexState::Missing => Finding::wrong(check, said, create),
        IndexState::Conflict { index, .. } => {
            let mend = match index {
                // Providers with another retention than the one that was asked for have made it.
                Some(index) => format!(
                    "/* only if the retention of the providers is {} s; else: mongolock doctor --retention TIME */ {collection}.dropIndex({index:?}); {create}",
                    collections.retention.as_secs()
                ),
                None => format!("{collection}.getIndexes()"),
            };
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

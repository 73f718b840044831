//! The TTL index, which removes the documents of unused locks. It is only looked at.

use mongodb::bson::{Bson, Document, doc};

use super::{Finding, UNAUTHORIZED, code};
use crate::connection::Place;
use crate::driver;

/// The server's code for a collection that does not exist.
const NO_COLLECTION: i32 = 26;

pub(super) async fn ttl_index(place: &Place) -> Finding {
    let (check, name) = ("TTL index", place.locks.name());
    // One batch has all indexes: a collection has 64 at most.
    let reply = match place.database.run_command(doc! { "listIndexes": name }).await {
        Ok(reply) => reply,
        Err(error) if code(&error) == Some(NO_COLLECTION) => {
            return Finding::ok(
                check,
                "there is no collection yet; the first acquisition creates the collection and its index",
            );
        }
        Err(error) if code(&error) == Some(UNAUTHORIZED) => {
            let grant = super::rights::grant(place, name, &["listIndexes"]);
            return Finding::unknown(check, "this user may not list the indexes").mend(grant);
        }
        Err(error) => return Finding::unknown(check, driver::text(&error)),
    };
    let cursor = reply.get_document("cursor");
    let indexes = cursor.and_then(|cursor| cursor.get_array("firstBatch"));
    let indexes = indexes.map(Vec::as_slice).unwrap_or_default();
    let on_end = indexes
        .iter()
        .filter_map(Bson::as_document)
        .find(|index| is_on_end(index));
    judge(check, name, on_end)
}

/// Whether an index is the one on the end of leases.
fn is_on_end(index: &Document) -> bool {
    index
        .get_document("key")
        .is_ok_and(|key| key.len() == 1 && key.contains_key("expiresAt"))
}

fn judge(check: &'static str, name: &str, index: Option<&Document>) -> Finding {
    let collection = format!("db.getCollection({name:?})");
    let Some(index) = index else {
        let said = "there is none: the documents of unused locks stay";
        let mend = format!(
            "{collection}.createIndex({{ expiresAt: 1 }}, {{ name: \"expiresAt_ttl\", expireAfterSeconds: 86400 }})"
        );
        return Finding::wrong(check, said, mend);
    };
    let key = index.get_str("name").unwrap_or("expiresAt_ttl");
    let change = format!(
        "db.runCommand({{ collMod: {name:?}, index: {{ name: {key:?}, expireAfterSeconds: 86400 }} }})"
    );
    match index.get("expireAfterSeconds").map(seconds) {
        Some(Some(seconds)) if seconds > 0 => Finding::ok(
            check,
            format!("{key}: documents of unused locks are removed after {seconds} s"),
        ),
        Some(Some(_)) => {
            let said = format!(
                "{key} removes a lock as soon as its lease ends, and the order of its tokens with it"
            );
            Finding::wrong(check, said, change)
        }
        _ => Finding::wrong(
            check,
            format!("{key} is no TTL index: the documents of unused locks stay"),
            change,
        ),
    }
}

fn seconds(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(seconds) => Some(i64::from(*seconds)),
        Bson::Int64(seconds) => Some(*seconds),
        #[expect(clippy::cast_possible_truncation, reason = "the server allows 31 bits")]
        Bson::Double(seconds) => Some(*seconds as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn each_form_of_the_index_is_judged() {
        let state = |index: Option<Document>| judge("TTL index", "locks", index.as_ref()).state;
        let index =
            |seconds: Bson| doc! { "name": "a", "key": { "expiresAt": 1 }, "expireAfterSeconds": seconds };
        assert_eq!(state(Some(index(86_400.into()))), State::Ok);
        assert_eq!(state(Some(index(86_400.0.into()))), State::Ok);
        assert_eq!(state(Some(index(0.into()))), State::Wrong);
        assert_eq!(
            state(Some(doc! { "name": "a", "key": { "expiresAt": 1 } })),
            State::Wrong
        );
        assert_eq!(state(None), State::Wrong);
        assert!(!is_on_end(&doc! { "key": { "expiresAt": 1, "lockId": 1 } }));
    }
}

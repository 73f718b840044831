//! What the list of the collection's indexes says about the TTL index.

use std::time::Duration;

use mongodb::bson::{Bson, Document};
use mongodb::error::Error;

use super::INDEX_NAME;
use crate::error::meaning::Meaning;
use crate::options::TtlOptions;
use crate::store::IndexState;
use crate::store::mongo::MongoStore;
use crate::timing::COMMAND_LIMIT;

/// Options with which an index on the same keys is another index to the server, which allows both.
const DISTINGUISHING: [&str; 3] = ["partialFilterExpression", "sparse", "unique"];

/// What the list of indexes says.
pub(super) enum Listed {
    /// An index is there that proves this state.
    Proved(IndexState),
    /// The collection is missing, and with it the index.
    NoCollection,
    /// The index is missing and no other index conflicts with it.
    Open,
    /// The user may not list the indexes, as this error says.
    Forbidden(Error),
}

impl Listed {
    pub(super) fn proved(self) -> Option<IndexState> {
        match self {
            Self::Proved(state) => Some(state),
            Self::NoCollection | Self::Open | Self::Forbidden(_) => None,
        }
    }
}

impl MongoStore {
    /// Asks for the list of indexes: `listIndexes` does not wait for open transactions, unlike `createIndexes`.
    pub(super) async fn listed(&self, wanted: TtlOptions) -> Result<Listed, Error> {
        let listing = self.locks.list_indexes().max_time(COMMAND_LIMIT).await;
        let mut indexes = match listing {
            // They are read as plain documents: an index with options that the driver does not know is no error.
            Ok(indexes) => indexes.with_type::<Document>(),
            Err(error) => {
                return match Meaning::of(&error) {
                    Meaning::NoCollection => Ok(Listed::NoCollection),
                    Meaning::Right => Ok(Listed::Forbidden(error)),
                    _ => Err(error),
                };
            }
        };
        let mut state = None;
        while indexes.advance().await? {
            // The first index that proves a state decides; the rest is read as well, so that the cursor ends at the server.
            let index = indexes.deserialize_current()?;
            state = state.or_else(|| proved_by(&index, wanted));
        }
        Ok(state.map_or(Listed::Open, Listed::Proved))
    }
}

/// The state that this index proves by itself, by the rules by which the server refuses a second index.
fn proved_by(index: &Document, wanted: TtlOptions) -> Option<IndexState> {
    let is_named = index.get_str("name").ok() == Some(INDEX_NAME);
    let is_alike = is_on_expiry(index) && !DISTINGUISHING.iter().any(|option| index.contains_key(option));
    if is_named && is_alike && expires_after(index, wanted.retention) {
        Some(IndexState::Ready)
    } else if is_named || is_alike {
        Some(conflict(index, wanted))
    } else {
        None
    }
}

fn is_on_expiry(index: &Document) -> bool {
    let keys = index.get_document("key");
    keys.is_ok_and(|keys| keys.len() == 1 && number(keys.get("expiresAt")) == Some(1.0))
}

fn expires_after(index: &Document, retention: Duration) -> bool {
    // The driver sends whole seconds.
    let wanted = Duration::from_secs(retention.as_secs()).as_secs_f64();
    number(index.get("expireAfterSeconds")) == Some(wanted)
}

/// The value of a number that the server may have kept as any of its types; none that counts here needs more than 32
/// bits.
fn number(value: Option<&Bson>) -> Option<f64> {
    match value? {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => i32::try_from(*number).ok().map(f64::from),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

fn conflict(index: &Document, wanted: TtlOptions) -> IndexState {
    let seconds = wanted.retention.as_secs();
    let kept = number(index.get("expireAfterSeconds"));
    let margin = match kept.filter(|kept| *kept < wanted.takeover_margin.as_secs_f64()) {
        Some(kept) => format!(
            "; it removes an expired lock {kept} s after the end of its lease, which ends the takeover_margin of {:?} early",
            wanted.takeover_margin
        ),
        None => String::new(),
    };
    let name = index.get_str("name").unwrap_or_default();
    let fields = index.get_document("key").map_or(0, Document::len);
    let reason = match kept {
        Some(kept) if fields == 1 => {
            format!("the index `{name}` removes documents after {kept} s, and not after {seconds} s{margin}")
        }
        _ => format!(
            "the index `{name}` takes the place of {INDEX_NAME} on expiresAt with expireAfterSeconds {seconds}{margin}"
        ),
    };
    let index = index.get_str("name").ok().map(str::to_owned);
    IndexState::Conflict { index, reason }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    const WANTED: TtlOptions = TtlOptions {
        retention: Duration::from_secs(86_400),
        takeover_margin: Duration::from_secs(60),
    };

    fn state(index: &Document) -> &'static str {
        match proved_by(index, WANTED) {
            Some(IndexState::Ready) => "ready",
            Some(IndexState::Conflict { .. }) => "conflict",
            None => "nothing",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_wanted_index_is_ready_whatever_the_type_of_its_numbers() {
        for seconds in [Bson::Int32(86_400), Bson::Int64(86_400), Bson::Double(86_400.0)] {
            for one in [Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0)] {
                let index = doc! {
                    "v": 2, "key": { "expiresAt": one }, "name": "expiresAt_ttl", "expireAfterSeconds": &seconds,
                };
                assert_eq!(state(&index), "ready");
            }
        }
    }

    #[test]
    fn an_index_that_the_server_would_refuse_is_a_conflict() {
        let key = || doc! { "expiresAt": 1 };
        for index in [
            doc! { "key": key(), "name": "expiresAt_ttl" },
            doc! { "key": key(), "name": "expiresAt_ttl", "expireAfterSeconds": 0 },
            doc! { "key": key(), "name": "expiresAt_ttl", "expireAfterSeconds": f64::NAN },
            doc! { "key": key(), "name": "expiresAt_ttl", "expireAfterSeconds": 86_400, "sparse": true },
            doc! { "key": { "expiresAt": -1 }, "name": "expiresAt_ttl", "expireAfterSeconds": 86_400 },
            doc! { "key": { "expiresAt": 1, "_id": 1 }, "name": "expiresAt_ttl" },
            doc! { "key": key(), "name": "mine" },
            doc! { "key": key(), "name": "mine", "expireAfterSeconds": 86_400 },
        ] {
            assert_eq!(state(&index), "conflict", "{index}");
        }
    }

    #[test]
    fn a_conflict_says_whether_the_index_ends_the_takeover_margin_early() {
        for (seconds, ends_early) in [(0, true), (59, true), (60, false), (3600, false)] {
            let index = doc! { "key": { "expiresAt": 1 }, "name": INDEX_NAME, "expireAfterSeconds": seconds };
            let Some(IndexState::Conflict { reason, .. }) = proved_by(&index, WANTED) else {
                panic!("{index} is no conflict");
            };
            assert_eq!(reason.contains("takeover_margin of 60s"), ends_early, "{reason}");
        }
    }

    #[test]
    fn other_indexes_prove_no_state() {
        for index in [
            doc! { "key": { "_id": 1 }, "name": "_id_" },
            doc! { "key": { "lockId": 1 }, "name": "mine", "expireAfterSeconds": 86_400 },
            doc! { "key": { "expiresAt": "hashed" }, "name": "mine" },
            doc! { "key": { "expiresAt": 1 }, "name": "mine", "partialFilterExpression": { "lockId": "" } },
        ] {
            assert_eq!(state(&index), "nothing", "{index}");
        }
    }
}

//! The TTL index on the collection of the locks.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use tokio::sync::watch;
use tokio::time::sleep;

use super::look::Looked;
use super::mongo::{MongoStore, millis};
use super::{IndexState, Store};
use crate::error::meaning::{Meaning, is_max_time_expired};
use crate::meter::CommandKind;
use crate::protocol::{Id, IdKind, LockId, Row, RowOrder, Then, When};
use crate::timing::{COMMAND_LIMIT, INDEX_BUILD_LIMIT, INDEX_BUILD_PAUSE};
use crate::{LockError, LockFilter};

/// The name of the index; DistributedLock.MongoDB uses the same one, so that both find one index.
const INDEX_NAME: &str = "expiresAt_ttl";

/// The `_id` of the internal lock whose holder may build the index on a filled collection. No user's lock can have this
/// name, because names with a control character are refused.
pub(super) const BUILD_LOCK: &str = "mongolock\u{1f}ttl-index";

impl Store {
    /// The state of the TTL index, which is created first if it is missing and `creates` is true. It sends several
    /// commands, none of which can delay those of others by more than a second. One check runs at a time: behind an
    /// index build that does not end each of them would keep a connection of the pool.
    pub(crate) async fn index(&self, retention: Duration, creates: bool) -> Result<IndexState, LockError> {
        let Some(store) = self.mongo() else {
            return Ok(IndexState::Ready);
        };
        let _alone = store.index_check.lock().await;
        let listed = store.listed(retention).await;
        let collection = store.collection_state().await;
        let state = match listed {
            _ if collection == Some(IndexState::Capped) => return Ok(IndexState::Capped),
            Ok(IndexState::Missing | IndexState::NoCollection) if creates => {
                store.build_alone(retention).await?
            }
            // Who may not list the indexes finds out in this way.
            Err(error) if creates && error.meaning() == Meaning::Right => store.build(retention).await?,
            listed => listed?,
        };
        let exists_or_may = matches!(state, IndexState::Ready | IndexState::Missing);
        Ok(collection.filter(|_| exists_or_may).unwrap_or(state))
    }

    /// The state of the index at its last check; `None` before that, and since a stream has told that the collection was dropped or
    /// renamed.
    pub(crate) fn index_watch(&self) -> watch::Sender<Option<IndexState>> {
        let mongo = self.mongo();
        mongo.map_or_else(watch::Sender::default, |store| store.index.clone())
    }

    /// Finds out whether the server still refuses acquires, if it has refused the last acquire or renewal, by a claim that ends at
    /// once. The store notes the outcome, and it does not matter whether another process holds the lock.
    pub(crate) async fn ask_again(&self) {
        if self.shown().refusal.is_some() {
            let (_, claim) = internal_claim(Duration::ZERO);
            let _ = self.change(&[claim], RowOrder::Each, COMMAND_LIMIT).await;
        }
    }
}

impl MongoStore {
    /// Builds the index. On a filled collection only one process at a time builds; an empty collection has no lock that
    /// a build could delay. After a failed build the internal lock is left to expire, so that no process builds again
    /// soon.
    async fn build_alone(&self, retention: Duration) -> Result<IndexState, LockError> {
        let every = Looked::Filter(LockFilter::new());
        let locks = self
            .find(CommandKind::Index, &every, None, 1, COMMAND_LIMIT)
            .await?;
        if locks.is_empty() {
            return self.build(retention).await;
        }
        let run = async |row| {
            let ran = self
                .run(CommandKind::Index, &[row], RowOrder::Each, COMMAND_LIMIT)
                .await;
            Ok::<_, LockError>(ran.flatten()?[0].is_applied == Some(true))
        };
        let (id, claim) = internal_claim(INDEX_BUILD_PAUSE);
        if !run(claim).await? {
            sleep(INDEX_BUILD_LIMIT).await;
            return Ok(self.built(retention).await);
        }
        let state = self.build(retention).await?;
        if state == IndexState::Ready {
            let (min_hold, unused) = (0, 0);
            // A failed release is harmless: the lease expires, and the index need not be built again.
            let _ = run(internal(When::is(&id), Then::End { min_hold, unused })).await;
        }
        Ok(state)
    }

    /// Builds the index. The server ends the build after a second, because commands on the collection wait for it.
    async fn build(&self, retention: Duration) -> Result<IndexState, LockError> {
        let seconds = millis(retention) / 1000;
        let index = doc! { "key": { "expiresAt": 1 }, "name": INDEX_NAME, "expireAfterSeconds": seconds };
        let mut command = doc! { "createIndexes": self.locks.name(), "indexes": [index] };
        // By default a build waits for every voting member, even while one is down. A standalone server refuses the
        // option.
        command.insert("commitQuorum", "majority");
        let send = |command| self.write(CommandKind::Index, command, INDEX_BUILD_LIMIT, false);
        let mut built = send(command.clone()).await;
        if matches!(&built, Err(error) if error.meaning() == Meaning::Unsupported) {
            command.remove("commitQuorum");
            built = send(command).await;
        }
        match built {
            Err(LockError::Mongo(error)) if is_max_time_expired(&error) => Ok(self.built(retention).await),
            built => built.map(|_| IndexState::Ready),
        }
    }

    /// The state after a build that was aborted at its time limit, with the same text in all processes.
    async fn built(&self, retention: Duration) -> IndexState {
        if let Ok(IndexState::Ready) = self.listed(retention).await {
            return IndexState::Ready;
        }
        let (name, seconds) = (self.locks.name(), retention.as_secs());
        let reason = format!(
            "the TTL index was not built within 1 s: a transaction on the collection is open, or the collection is large; in mongosh: \
             db.getCollection({name:?}).createIndex({{ expiresAt: 1 }}, {{ name: {INDEX_NAME:?}, expireAfterSeconds: {seconds} }})"
        );
        IndexState::Failed { reason }
    }

    /// The state of the index by the list of indexes: `listIndexes` does not wait for open transactions, unlike
    /// `createIndexes`.
    async fn listed(&self, retention: Duration) -> Result<IndexState, LockError> {
        // A collection has 64 indexes at most, which are one batch.
        let command = doc! { "listIndexes": self.locks.name() };
        let mut indexes = match self.read(CommandKind::Index, command, COMMAND_LIMIT).await {
            Err(error) if error.meaning() == Meaning::NoCollection => return Ok(IndexState::NoCollection),
            listed => listed?,
        };
        let proved = indexes.find_map(|index| proved_by(&index, self.locks.name(), retention));
        Ok(proved.unwrap_or(IndexState::Missing))
    }

    /// A problem with the options of the collection: an index on a capped collection removes nothing, and a collation
    /// changes which names are the same. Without the right to list collections it counts as an ordinary collection.
    async fn collection_state(&self) -> Option<IndexState> {
        let command = doc! { "listCollections": 1, "filter": { "name": self.locks.name() } };
        let listed = self
            .read(CommandKind::Index, command, COMMAND_LIMIT)
            .await
            .ok()?
            .next()?;
        let options = listed.get_document("options").ok()?;
        if options.get_bool("capped").is_ok_and(|is_capped| is_capped) {
            return Some(IndexState::Capped);
        }
        // The server leaves out the collation that compares texts as they are.
        let locale = options.get_document("collation").ok()?.get_str("locale");
        let locale = locale.ok()?.to_owned();
        Some(IndexState::Collation { locale })
    }
}

/// The claim of the internal lock for this time, and its id.
fn internal_claim(expiry: Duration) -> (LockId, Row) {
    let id = Id::new([0; 6], IdKind::Single, 0).text("mongolock-ttl-index");
    let claim = Then::Claim {
        id: Arc::clone(&id),
        expiry: millis(expiry),
        tokens: 1,
    };
    (id, internal(When::Free { margin: 0 }, claim))
}

/// A row of the internal lock.
fn internal(when: When, then: Then) -> Row {
    let name = Arc::from(BUILD_LOCK);
    Row { name, when, then }
}

/// The state that this index of the collection proves by itself.
fn proved_by(index: &Document, collection: &str, retention: Duration) -> Option<IndexState> {
    let name = index.get_str("name").ok()?;
    let is_on_expiry = index.get_document("key").ok()?.keys().eq(["expiresAt"]);
    let is_alike = is_on_expiry && !index.contains_key("partialFilterExpression");
    if name != INDEX_NAME && !is_alike {
        return None;
    }
    // The server may have kept the number as any of its types, which have one text.
    let kept = index.get("expireAfterSeconds").map(Bson::to_string);
    let seconds = retention.as_secs().to_string();
    if name == INDEX_NAME && is_alike && kept.as_ref() == Some(&seconds) {
        return Some(IndexState::Ready);
    }
    let kept = kept.map_or("never".to_owned(), |kept| format!("after {kept} s"));
    let reason = format!(
        "the index `{name}` removes documents {kept}, not after {seconds} s (a longer `takeover_margin` ends early); in mongosh: \
         db.getCollection({collection:?}).dropIndex({name:?})"
    );
    let index = Some(name.to_owned());
    Some(IndexState::Conflict { index, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn state(index: &Document) -> &'static str {
        match proved_by(index, "locks", DAY) {
            Some(IndexState::Ready) => "ready",
            Some(IndexState::Conflict { .. }) => "conflict",
            None => "nothing",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_lock_of_a_user_can_have_the_name_of_the_internal_lock() {
        assert!(crate::name::RenderedName::new(BUILD_LOCK).check().is_err());
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
            doc! { "key": key(), "name": "expiresAt_ttl", "expireAfterSeconds": 86_400, "partialFilterExpression": {} },
            doc! { "key": { "expiresAt": 1, "_id": 1 }, "name": "expiresAt_ttl" },
            doc! { "key": key(), "name": "mine" },
            doc! { "key": key(), "name": "mine", "expireAfterSeconds": 86_400 },
        ] {
            assert_eq!(state(&index), "conflict", "{index}");
        }
    }

    #[test]
    fn other_indexes_prove_no_state() {
        for index in [
            doc! { "key": { "_id": 1 }, "name": "_id_" },
            doc! { "key": { "lockId": 1 }, "name": "mine", "expireAfterSeconds": 86_400 },
            doc! { "key": { "expiresAt": 1 }, "name": "mine", "partialFilterExpression": { "lockId": "" } },
        ] {
            assert_eq!(state(&index), "nothing", "{index}");
        }
    }
}

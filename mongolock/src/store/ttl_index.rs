//! The TTL index on the collection of the locks.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::mongo::MongoStore;
use super::{IndexState, Store};
use crate::backoff::spread;
use crate::duration::millis;
use crate::error::meaning::{Meaning, is_max_time_expired};
use crate::meter::CommandKind;
use crate::timing::{COMMAND_LIMIT, FAILED_PAUSE, INDEX_BUILD_LIMIT, INDEX_RECHECK};
use crate::{LockError, trace};

/// The name of the index; DistributedLock.MongoDB uses the same one, so that both find one index.
const INDEX_NAME: &str = "expiresAt_ttl";

impl Store {
    /// The state of the TTL index, which is created first if it is missing and `creates` is true. One check runs at a time:
    /// behind an index build that does not end each of them would keep a connection of the pool.
    pub(crate) async fn index(&self, retention: Duration, creates: bool) -> Result<IndexState, LockError> {
        let Some(store) = self.mongo() else {
            return Ok(IndexState::Ready);
        };
        let _alone = store.index_check.lock().await;
        let listed = store.listed(retention).await;
        let collection = store.collection_state().await;
        let state = match listed {
            _ if collection == Some(IndexState::Capped) => return Ok(IndexState::Capped),
            Ok(IndexState::Missing | IndexState::NoCollection) if creates => store.build(retention).await?,
            // Who may not list the indexes finds out in this way.
            Err(error) if creates && error.meaning() == Meaning::Right => store.build(retention).await?,
            listed => listed?,
        };
        let exists_or_may = matches!(state, IndexState::Ready | IndexState::Missing);
        Ok(collection.filter(|_| exists_or_may).unwrap_or(state))
    }

    /// Checks the index again and again: once an hour, and when a stream has told that the collection was dropped or renamed.
    pub(crate) async fn keep_index(&self, retention: Duration) {
        if let Some(store) = self.mongo() {
            check_again(|| self.index(retention, true), &store.index).await;
        }
    }

    /// The state of the index at its last check; `None` before that, and if the collection was dropped or renamed since then.
    pub(crate) fn index_state(&self) -> Option<IndexState> {
        self.mongo()
            .map_or(Some(IndexState::Ready), |store| store.index.borrow().clone())
    }

    /// Waits until the index is checked, for a process that ends soon after its start.
    pub(crate) async fn index_checked(&self) {
        if let Some(store) = self.mongo() {
            // The sender lives as long as this.
            let _ = store.index.subscribe().wait_for(Option::is_some).await;
        }
    }
}

/// Checks the index repeatedly, and reports each new state once, so that a missing index does not fill the log.
async fn check_again<F: Future<Output = Result<IndexState, LockError>>>(
    check: impl Fn() -> F,
    state: &watch::Sender<Option<IndexState>>,
) {
    loop {
        let mut ended = state.subscribe();
        let found = check().await.unwrap_or_else(|error| IndexState::unknown(&error));
        let is_new = state.send_if_modified(|state| {
            // What was found before the end of the collection counts no more.
            let has_ended = ended.has_changed().unwrap_or(true);
            !has_ended && state.replace(found.clone()).as_ref() != Some(&found)
        });
        if is_new {
            trace::index(found == IndexState::Ready, &found);
        }
        // The sender lives as long as this.
        let _ = timeout(spread(INDEX_RECHECK), ended.wait_for(Option::is_none)).await;
        sleep(FAILED_PAUSE).await;
    }
}

impl MongoStore {
    /// Builds the index. The server ends the build after a second: it waits for all open transactions on a collection with
    /// documents, and later commands of all processes wait for it.
    async fn build(&self, retention: Duration) -> Result<IndexState, LockError> {
        let (name, seconds) = (self.locks.name(), millis(retention) / 1000);
        let index = doc! { "key": { "expiresAt": 1 }, "name": INDEX_NAME, "expireAfterSeconds": seconds };
        // By default a build waits for every voting member, even while one is down. A standalone server refuses the
        // option.
        let mut command = doc! { "createIndexes": name, "indexes": [index], "commitQuorum": "majority" };
        let send = |command| self.write(CommandKind::Index, command, INDEX_BUILD_LIMIT, false);
        let mut built = send(command.clone()).await;
        if matches!(&built, Err(error) if error.meaning() == Meaning::Unsupported) {
            command.remove("commitQuorum");
            built = send(command).await;
        }
        if !matches!(&built, Err(LockError::Mongo(error)) if is_max_time_expired(error)) {
            return built.map(|_| IndexState::Ready);
        }
        let reason = format!(
            "the TTL index was not built within 1 s: a transaction on the collection is open, or the collection is large; in mongosh: \
             db.getCollection({name:?}).createIndex({{ expiresAt: 1 }}, {{ name: {INDEX_NAME:?}, expireAfterSeconds: {seconds} }})"
        );
        Ok(IndexState::Failed { reason })
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
        let listed = self.read(CommandKind::Index, command, COMMAND_LIMIT).await;
        let collection = listed.ok()?.next()?;
        let options = collection.get_document("options").ok()?;
        if options.get_bool("capped").is_ok_and(|is_capped| is_capped) {
            return Some(IndexState::Capped);
        }
        // The server leaves out the collation that compares texts as they are.
        let locale = options.get_document("collation").ok()?.get_str("locale");
        let locale = locale.ok()?.to_owned();
        Some(IndexState::Collation { locale })
    }
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
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::time::{Instant, sleep_until};

    use super::*;
    use crate::sync::lock;

    const DAY: Duration = Duration::from_secs(86_400);

    /// What a check finds, and the seconds that it takes.
    type Plan = [(u64, Result<IndexState, LockError>)];

    /// The seconds at which checks begin, up to the end of the plan. The collection is dropped at these seconds.
    async fn checks(plan: &Plan, drops: &[u64]) -> Vec<u64> {
        let (start, checks) = (Instant::now(), Mutex::new(Vec::new()));
        let state = watch::Sender::new(None);
        let check = async || {
            let begun = lock(&checks).len();
            let Some((takes, found)) = plan.get(begun) else {
                return pending().await;
            };
            lock(&checks).push(start.elapsed().as_secs());
            sleep(Duration::from_secs(*takes)).await;
            found.clone()
        };
        let dropping = async {
            for second in drops {
                sleep_until(start + Duration::from_secs(*second)).await;
                state.send_replace(None);
            }
            pending::<()>().await;
        };
        let _ = timeout(DAY, async { tokio::join!(check_again(check, &state), dropping) }).await;
        checks.into_inner().unwrap()
    }

    /// Also after an error, and after a build that reached its time limit: the report has the command that creates the index.
    #[tokio::test(start_paused = true)]
    async fn the_index_is_checked_once_an_hour() {
        let (locale, reason) = ("en".to_owned(), "a transaction is open".to_owned());
        for found in [
            Ok(IndexState::Ready),
            Ok(IndexState::Collation { locale }),
            Ok(IndexState::Capped),
            Ok(IndexState::Failed { reason }),
            Err(LockError::NoProvider),
        ] {
            let checks = checks(&[(0, found.clone()), (0, found.clone()), (0, found)], &[]).await;
            for hour in checks.windows(2) {
                assert!((2880..=4321).contains(&(hour[1] - hour[0])), "{checks:?}");
            }
            assert_eq!(checks.len(), 3);
        }
    }

    /// The second drop comes while a check runs, whose result is then outdated.
    #[tokio::test(start_paused = true)]
    async fn the_index_is_checked_when_its_collection_was_dropped() {
        let plan = [
            (0, Ok(IndexState::Ready)),
            (5, Err(LockError::NoProvider)),
            (0, Ok(IndexState::Ready)),
        ];
        assert_eq!(checks(&plan, &[100, 103]).await, [0, 101, 107]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_from_before_a_drop_is_not_told() {
        let state = watch::Sender::new(None);
        let looking = async {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(*state.borrow(), Some(IndexState::Ready));
            state.send_replace(None);
            sleep(FAILED_PAUSE / 2).await;
            assert_eq!(*state.borrow(), None);
            sleep(FAILED_PAUSE).await;
            assert_eq!(*state.borrow(), Some(IndexState::Ready));
        };
        tokio::select! {
            () = check_again(async || Ok(IndexState::Ready), &state) => {}
            () = looking => {}
        }
    }

    fn state(index: &Document) -> &'static str {
        match proved_by(index, "locks", DAY) {
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
    fn an_index_that_the_server_would_refuse_is_a_conflict_and_another_one_proves_nothing() {
        let key = || doc! { "expiresAt": 1 };
        let refused = [
            doc! { "key": key(), "name": "expiresAt_ttl" },
            doc! { "key": key(), "name": "expiresAt_ttl", "expireAfterSeconds": 0 },
            doc! { "key": key(), "name": "expiresAt_ttl", "expireAfterSeconds": f64::NAN },
            doc! { "key": key(), "name": "expiresAt_ttl", "expireAfterSeconds": 86_400, "partialFilterExpression": {} },
            doc! { "key": { "expiresAt": 1, "_id": 1 }, "name": "expiresAt_ttl" },
            doc! { "key": key(), "name": "mine" },
            doc! { "key": key(), "name": "mine", "expireAfterSeconds": 86_400 },
        ];
        let others = [
            doc! { "key": { "_id": 1 }, "name": "_id_" },
            doc! { "key": { "lockId": 1 }, "name": "mine", "expireAfterSeconds": 86_400 },
            doc! { "key": key(), "name": "mine", "partialFilterExpression": { "lockId": "" } },
        ];
        for (indexes, expected) in [(&refused[..], "conflict"), (&others, "nothing")] {
            for index in indexes {
                assert_eq!(state(index), expected, "{index}");
            }
        }
    }
}

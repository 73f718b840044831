mod listed;

use std::sync::Arc;
use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::error::Error;
use mongodb::options::{CommitQuorum, IndexOptions};

use listed::Listed;

use super::mongo::{MongoStore, millis};
use crate::LockError;
use crate::duration::Rounded;
use crate::error::meaning::is_max_time_expired;
use crate::options::TtlOptions;
use crate::protocol::{Id, Kind, LockId, Name, Order, Reply, Row, Then, When};
use crate::store::{IndexCheck, IndexState};
use crate::timing::{COMMAND_LIMIT, INDEX_BUILD_LIMIT, INDEX_BUILD_PAUSE};

/// The name of the index; DistributedLock.MongoDB uses the same one, so that both find one index.
const INDEX_NAME: &str = "expiresAt_ttl";

/// The `_id` of the internal lock whose holder may build the index on a filled collection. No user's lock can have this
/// name, because names with a control character are refused.
pub(super) const BUILD_LOCK: &str = "mongolock\u{1f}ttl-index";

/// The locale of the collation that compares texts as they are; the server leaves it out.
const SIMPLE: &str = "simple";

/// The owner in the `lockId` of the internal lock, so that its document looks like every other.
const BUILD_OWNER: &str = "mongolock-ttl-index";

impl MongoStore {
    /// One check at a time: behind an index build that does not end each of them would keep a connection of the pool,
    /// and with the last of these locks would hang as well.
    pub(crate) async fn ensure_index(&self, wanted: TtlOptions) -> IndexCheck {
        let _alone = self.index_check.lock().await;
        let checked = match self.listed(wanted).await {
            Ok(Listed::Proved(IndexState::Ready)) => Ok(self.with_options(IndexState::Ready).await.into()),
            Ok(Listed::Proved(state)) => Ok(state.into()),
            // Without a document there is no lock that a build could delay.
            Ok(Listed::NoCollection) => Ok(self.build(wanted).await.into()),
            Ok(Listed::Open | Listed::Forbidden(_)) => self.make_index(wanted).await,
            Err(error) => Err(error.into()),
        };
        checked.unwrap_or_else(|error| IndexState::unknown(&error).into())
    }

    /// The state of the index as it is. Nothing is created.
    pub(crate) async fn inspect_index(&self, wanted: TtlOptions) -> IndexState {
        match self.listed(wanted).await {
            Ok(Listed::Proved(IndexState::Ready)) => self.with_options(IndexState::Ready).await,
            Ok(Listed::Proved(state)) => state,
            Ok(Listed::NoCollection) => IndexState::NoCollection,
            Ok(Listed::Open) => self.with_options(IndexState::Missing).await,
            Ok(Listed::Forbidden(error)) | Err(error) => IndexState::from_error(&error),
        }
    }

    /// Creates the index where it can work: at once while no lock has a document, and else in one process at a time.
    async fn make_index(&self, wanted: TtlOptions) -> Result<IndexCheck, LockError> {
        // Some servers refuse a TTL index on a capped collection, others make one that does nothing.
        let expected = self.with_options(IndexState::Ready).await;
        if expected == IndexState::Capped {
            return Ok(expected.into());
        }
        let mut check: IndexCheck = if self.is_empty().await? {
            self.build(wanted).await.into()
        } else {
            self.build_alone(wanted).await?
        };
        if check.state == IndexState::Ready {
            check.state = expected;
        }
        Ok(check)
    }

    /// Builds the index as the holder of the internal lock. After a failed build the lock is left to expire, so that no
    /// process builds again before the pause is over.
    async fn build_alone(&self, wanted: TtlOptions) -> Result<IndexCheck, LockError> {
        let pause = Duration::from_secs(fastrand::u64(INDEX_BUILD_PAUSE));
        let internal = InternalLock::new();
        if !internal.acquire(self, pause).await? {
            return Ok(self.built_elsewhere(wanted).await?.into());
        }
        // Another process may have built it since the last listing.
        let state = match self.listed(wanted).await? {
            Listed::Proved(state) => state,
            Listed::NoCollection | Listed::Open | Listed::Forbidden(_) => self.build(wanted).await,
        };
        if matches!(state, IndexState::Failed { .. }) {
            return Ok(IndexCheck { state, next: pause });
        }
        // A failed release does no harm: the lease expires, and the index need not be built again.
        let _ = internal.release(self).await;
        Ok(state.into())
    }

    /// The state of the index after the build of another process has had the time that a build may take.
    async fn built_elsewhere(&self, wanted: TtlOptions) -> Result<IndexState, LockError> {
        tokio::time::sleep(INDEX_BUILD_LIMIT).await;
        let listed = self.listed(wanted).await?;
        Ok(listed.proved().unwrap_or_else(not_built))
    }

    /// Sends the build. After a build that ran out of time the list of indexes decides, because it may have succeeded.
    async fn build(&self, wanted: TtlOptions) -> IndexState {
        let Err(error) = self.create_index(wanted).await else {
            return IndexState::Ready;
        };
        if !is_max_time_expired(&error) {
            return IndexState::from_error(&error);
        }
        let listed = self.listed(wanted).await.ok().and_then(Listed::proved);
        listed.unwrap_or_else(not_built)
    }

    /// The server ends a build after a second, because commands on the collection wait for it.
    async fn create_index(&self, wanted: TtlOptions) -> Result<(), Error> {
        let options = IndexOptions::builder()
            .name(INDEX_NAME.to_owned())
            .expire_after(wanted.retention)
            .build();
        let index = IndexModel::builder()
            .keys(doc! { "expiresAt": 1 })
            .options(options);
        let create = self.locks.create_index(index.build()).max_time(INDEX_BUILD_LIMIT);
        if self.is_replicated().await? {
            // The default waits for every voting member, even while one is down; a standalone refuses the option.
            create.commit_quorum(CommitQuorum::Majority).await?;
        } else {
            create.await?;
        }
        Ok(())
    }

    /// Whether the server is a member of a replica set or a router.
    async fn is_replicated(&self) -> Result<bool, Error> {
        let hello = self
            .locks
            .client()
            .database("admin")
            .run_command(doc! { "hello": 1, "maxTimeMS": millis(COMMAND_LIMIT) })
            .await?;
        Ok(hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"))
    }

    /// The state of the collection by its options, or else this one of its index: an index on a capped collection removes
    /// nothing, and a collation changes which names are the same. Without the right to list collections it counts as an
    /// ordinary one.
    async fn with_options(&self, index: IndexState) -> IndexState {
        let database = self.locks.client().database(&self.locks.namespace().db);
        let own = doc! { "name": self.locks.name() };
        let Ok(mut found) = database.list_collections().filter(own).await else {
            return index;
        };
        if !matches!(found.advance().await, Ok(true)) {
            return index;
        }
        let Ok(collection) = found.deserialize_current() else {
            return index;
        };
        if collection.options.capped == Some(true) {
            return IndexState::Capped;
        }
        match collection.options.collation {
            Some(collation) if collation.locale != SIMPLE => IndexState::Collation {
                locale: collation.locale,
            },
            _ => index,
        }
    }

    /// Whether no lock has a document; the internal lock does not count.
    async fn is_empty(&self) -> Result<bool, Error> {
        let any = self
            .locks
            .find_one(doc! { "_id": { "$ne": BUILD_LOCK } })
            .projection(doc! { "_id": 1 })
            .max_time(COMMAND_LIMIT)
            .await?;
        Ok(any.is_none())
    }
}

/// The state after a build that failed, with the same text in the process that builds and in those that do not, so that
/// each logs it once.
fn not_built() -> IndexState {
    IndexState::Failed {
        reason: format!(
            "the TTL index was not built within {}, by this process or another: a transaction on the collection is \
             open, or the collection is large; the next attempt follows in some minutes",
            Rounded(INDEX_BUILD_LIMIT)
        ),
    }
}

/// A claim on the internal lock.
pub(super) struct InternalLock {
    name: Name,
    id: LockId,
}

impl InternalLock {
    pub(super) fn new() -> Self {
        Self {
            name: Arc::from(BUILD_LOCK),
            id: Id::new([0; 6], Kind::Single, 0).text(BUILD_OWNER),
        }
    }

    /// Takes the lock for this time, if it is free, and returns whether it was.
    pub(super) async fn acquire(&self, store: &MongoStore, expiry: Duration) -> Result<bool, LockError> {
        let then = Then::Claim {
            id: Arc::clone(&self.id),
            expiry: millis(expiry),
            tokens: 1,
        };
        self.run(store, When::Free { margin: 0 }, then).await
    }

    pub(super) async fn release(&self, store: &MongoStore) -> Result<bool, LockError> {
        let then = Then::End {
            min_hold: 0,
            unused: 0,
        };
        self.run(store, When::is(&self.id), then).await
    }

    async fn run(&self, store: &MongoStore, when: When, then: Then) -> Result<bool, LockError> {
        let name = Arc::clone(&self.name);
        let row = Row { name, when, then };
        let ran = store.run(&[row], Order::Each, COMMAND_LIMIT).await;
        let replies = ran.flatten()?.into_iter().collect::<Result<Vec<Reply>, _>>()?;
        Ok(replies[0].is_applied == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lock_of_a_user_can_have_the_name_of_the_internal_lock() {
        assert!(crate::name::RenderedName::new(BUILD_LOCK).check().is_err());
    }
}

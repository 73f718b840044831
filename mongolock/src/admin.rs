mod events;
mod force_release;
mod info_stream;

use std::sync::Arc;

pub use self::events::{LockEvent, LockEventKind, LockEvents};
pub use self::force_release::ForceRelease;
pub use self::info_stream::LockInfoStream;
use crate::engine::Engine;
use crate::name;
use crate::store::{IndexState, Looked, info};
use crate::timing::FAILOVER_LIMIT;
use crate::{IntoLockName, LockError, LockFilter, LockInfo, task, trace};

/// The operator's interface: lists, reads and releases the locks of all processes that use the same collection. Made by
/// [`LockProvider::admin`](crate::LockProvider::admin).
///
/// Names are used unchecked, because another program may have used names that [`lock`](crate::LockProvider::lock)
/// refuses. The database user needs the privileges `find` and `update`. The calls also work after
/// [`shutdown`](crate::LockProvider::shutdown).
#[derive(Debug, Clone)]
pub struct LockAdmin {
    pub(crate) engine: Arc<Engine>,
}

impl LockAdmin {
    /// The locks that meet the filter, in the order of their names (by code points).
    ///
    /// A lock is listed from its first acquisition until its document is removed, one retention after its last use.
    /// Documents whose `_id` is not a string are not locks and are left out, and so is the internal lock of
    /// [`index_state`](Self::index_state). For very many locks, [`stream`](Self::stream) returns them one by one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// use mongolock::{LockFilter, LockProvider, LockState};
    ///
    /// let provider = LockProvider::in_memory();
    /// let guard = provider.lock("report:1").await?;
    /// provider.lock("report:2").await?.release().await?;
    ///
    /// let held = LockFilter::new().prefix("report:").state(LockState::Held);
    /// let held = provider.admin().list(held).await?;
    /// assert_eq!(held.len(), 1);
    /// assert_eq!(held[0].name, "report:1");
    /// assert_eq!(held[0].fencing_token, guard.fencing_token());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::CorruptDocument`] names the first listed document that cannot be read; `stream` continues after it.
    /// [`LockError::Mongo`] if MongoDB refuses the query, needs more than 5 s for 1000 locks, or has not returned all
    /// locks within 30 s.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn list(&self, filter: LockFilter) -> Result<Vec<LockInfo>, LockError> {
        let mut found = self.stream(filter);
        let all = async {
            let mut locks = Vec::new();
            while let Some(lock) = found.next().await {
                locks.push(lock?);
            }
            Ok(locks)
        };
        task::limited(FAILOVER_LIMIT, "query", all).await
    }

    /// The locks that meet the filter, one by one: as [`list`](Self::list), but without all of them in memory.
    ///
    /// The stream reads pages of 1000 locks, each with a query of its own at the server's time of that query. A lock
    /// that meets the filter during the whole read is returned exactly once. A lock that is used for the first time, or
    /// changes its state, while the stream is read may be returned or not.
    ///
    /// See [`LockInfoStream`] for errors, cancel safety and panics.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// use mongolock::{LockFilter, LockProvider, LockState};
    ///
    /// let provider = LockProvider::in_memory();
    /// let _held = provider.lock("report:1").await?;
    ///
    /// let mut held = provider.admin().stream(LockFilter::new().state(LockState::Held));
    /// while let Some(lock) = held.next().await {
    ///     let lock = lock?;
    ///     println!("{} is held by {:?}", lock.name, lock.owner);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(&self, filter: LockFilter) -> LockInfoStream {
        LockInfoStream::new(&self.engine, filter)
    }

    /// The changes of the locks that meet the filter, as events: first the present holds, then each change, in the
    /// order of the server.
    ///
    /// The name, the prefix and the owner of the filter are used. An event passes the owner's filter if its hold, or the
    /// hold that it has replaced, is of this owner. The server filters names and prefixes, and leaves out renewals, so a
    /// stream for one name costs little. A hand-over between callers of one process is not reported, because the document
    /// does not change, and a forced release looks like a release.
    ///
    /// The events come from a change stream, which needs a replica set or a sharded cluster and the privileges `find`
    /// and `changeStream`. Behind `mongos` a shard without writes may delay them by 10 s. Without a change stream the
    /// locks are read once a second: a hold between two reads is missed, and a takeover looks like an acquisition. In
    /// memory a read follows each change at once.
    ///
    /// See [`LockEvents`] for the past, errors and cancel safety.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// use mongolock::{LockEventKind, LockFilter, LockProvider};
    ///
    /// let provider = LockProvider::in_memory().to_builder().owner("web-1").build()?;
    /// let mut events = provider.admin().events(LockFilter::new().name("leader:billing"));
    /// let leader = provider.lock("leader:billing").await?;
    ///
    /// let event = events.next().await.expect("the events go on")?;
    /// assert!(event.kind.is_held());
    /// assert_eq!(event.owner.as_deref(), Some("web-1"));
    ///
    /// leader.release().await?;
    /// let event = events.next().await.expect("the events go on")?;
    /// assert_eq!(event.kind, LockEventKind::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self, filter: LockFilter) -> LockEvents {
        LockEvents::new(&self.engine, filter)
    }

    /// Reads one lock. `None` if it has no document, because it was never acquired, or its document was removed after
    /// the retention.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// use mongolock::{LockProvider, LockState};
    ///
    /// let provider = LockProvider::in_memory().to_builder().owner("billing-1").build()?;
    /// let _guard = provider.lock("report:1").await?;
    ///
    /// let report = provider.admin().get("report:1").await?.expect("the lock is held");
    /// assert_eq!(report.owner.as_deref(), Some("billing-1"));
    /// assert_eq!(report.state, LockState::Held);
    /// assert!(provider.admin().get("report:2").await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::CorruptDocument`] if the document cannot be read. [`LockError::Mongo`] if MongoDB refuses the
    /// query, needs more than 5 s for it, or has not replied within 30 s. [`LockError::InvalidName`] if the `Display` of
    /// the name returns an error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn get(&self, name: impl IntoLockName) -> Result<Option<LockInfo>, LockError> {
        let (store, name) = (Arc::clone(&self.engine.store), name::whole(name)?);
        let margin = self.engine.config.options.takeover_margin;
        // The future is on the heap, so that the caller's future stays small.
        let reading = Box::pin(async move { store.all(&Looked::Names(vec![Arc::from(name)])).await });
        let found = task::request("query", reading).await?.pop();
        found.map(|(name, sight)| info(&name, &sight, margin)).transpose()
    }

    /// Releases a lock by force: ends the lease of its holder, or the mark or the minimum hold that keeps the lock
    /// taken, and repairs a damaged document.
    ///
    /// The request is sent when it is awaited, and gives `Result<bool, LockError>`: `false` if the lock was free.
    /// [`only_if`](ForceRelease::only_if) restricts it to the hold that the operator has seen. See [`ForceRelease`] for
    /// errors, cancel safety and panics.
    ///
    /// The lock is free at once, and waiters are woken. The document stays, so that the next fencing token is greater.
    ///
    /// The holder notices the loss at its next renewal, after its `renew_interval` at the latest, or at once if it uses
    /// the same provider: its guard is lost, and the body of an annotated function is cancelled. A hold that is no
    /// longer renewed (`max_hold`) notices it at its deadline or at its release. **Until then its work continues at the
    /// same time as that of the next holder**; only fencing tokens then protect data from a stale write. Late renewals
    /// and the late release of the former holder change nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// use mongolock::{LockError, LockProvider};
    ///
    /// let provider = LockProvider::in_memory();
    /// let stuck = provider.to_builder().build()?.lock("report:1").await?;
    ///
    /// assert!(provider.admin().force_release("report:1").await?);
    /// assert!(!provider.admin().force_release("report:1").await?, "it is already free");
    ///
    /// let next = provider.lock("report:1").await?;
    /// assert!(next.fencing_token() > stuck.fencing_token());
    /// assert!(matches!(stuck.release().await, Err(LockError::Lost { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn force_release(&self, name: impl IntoLockName) -> ForceRelease {
        ForceRelease {
            engine: Arc::clone(&self.engine),
            name: name::whole(name),
            only_if: None,
            permit: None,
        }
    }

    /// Releases all locks of an owner by force, as [`force_release`](Self::force_release) does. It is meant for the locks of a
    /// process that is known to have ended.
    ///
    /// Returns the number of locks that were released, including those that only a minimum hold kept taken.
    ///
    /// The owner must match exactly. It is the one that [`owner`](crate::LockProviderBuilder::owner) has set, or
    /// `<host>:<process id>`; see [`LockInfo::owner`]. The minimum holds of this owner end as well; locks whose work is done
    /// ([`LockState::Done`](crate::LockState::Done)) stay taken. The locks are
    /// released 16 at a time, and a process of this owner that still runs can acquire new ones meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let gone = provider.to_builder().owner("billing-1").build()?;
    /// let _first = gone.lock("report:1").await?;
    /// let _second = gone.lock("report:2").await?;
    ///
    /// assert_eq!(provider.admin().release_owner("billing-1").await?, 2);
    /// assert!(provider.lock("report:1").try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if MongoDB refuses the request, or has not confirmed it within 30 s: none, some or all of
    /// the locks may then be released. The driver does not repeat these commands by itself, for instance after a
    /// failover. Repeating the call is safe, and returns the number of the remaining locks.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the request runs to its end in the background, even if the future is dropped. Before that, dropping it
    /// sends nothing.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn release_owner(&self, owner: &str) -> Result<u64, LockError> {
        let releasing = release_owner(Arc::clone(&self.engine), owner.to_owned());
        task::request("forced release", Box::pin(releasing)).await
    }

    /// Checks the TTL index that removes the documents of unused locks, and creates it if it is missing.
    ///
    /// Each provider makes the same check in the background at its first acquisition, once an hour, and after a change stream has
    /// reported that the collection was dropped or renamed:
    ///
    /// 1. It lists the indexes of the collection, which no transaction can block. If the index exists, or another index
    ///    prevents its creation, the result is known, and nothing else is sent. An index that is still being built
    ///    counts as existing.
    /// 2. Otherwise it creates the index. On a collection with documents, an index build waits for all open transactions on
    ///    the collection, and later commands of all processes wait for the build. So the server ends the build after 1 s, and
    ///    acquisitions are delayed by 1 s at most, unless a transaction that begins during the build delays it further. If the
    ///    build has failed, this call returns [`IndexState::Failed`] with the command for `mongosh` that creates the index.
    ///
    /// If transactions on the lock collection are long, or a build would take more than 1 s, create the index by hand
    /// at a time of low load; see the guide on [production](crate::guide::production#the-ttl-index). A user without the
    /// privilege to list indexes sends the build in any case; see [rights](crate::guide::production#rights).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mongolock::{IndexState, LockProvider};
    ///
    /// assert_eq!(LockProvider::in_memory().admin().index_state().await, IndexState::Ready);
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the check continues in the background.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn index_state(&self) -> IndexState {
        self.index(true).await
    }

    /// [`index_state`](Self::index_state) without creating anything: for the program `mongolock`.
    #[doc(hidden)]
    pub async fn inspect_index(&self) -> IndexState {
        self.index(false).await
    }

    async fn index(&self, creates: bool) -> IndexState {
        let (store, retention) = (Arc::clone(&self.engine.store), self.engine.config.retention);
        let checking = async move { store.index(retention, creates).await };
        let checked = task::request("check of the TTL index", checking).await;
        checked.unwrap_or_else(|error| IndexState::unknown(&error))
    }
}

/// The number of locks that are released at the same time.
const AT_ONCE: usize = 16;

async fn release_owner(engine: Arc<Engine>, owner: String) -> Result<u64, LockError> {
    let margin = engine.config.options.takeover_margin;
    let mut stuck = engine.store.stuck(&Looked::Owner(owner.clone()), margin).await?;
    let (mut count, mut failed) = (0, Ok(()));
    while !stuck.is_empty() && failed.is_ok() {
        let releases = stuck.drain(..stuck.len().min(AT_ONCE)).map(|(name, sight)| {
            let store = Arc::clone(&engine.store);
            task::start(async move { store.force_release(&name, sight).await })
        });
        for release in releases.collect::<Vec<_>>() {
            match release.await {
                Ok(was_released) => count += u64::from(was_released),
                Err(error) => failed = Err(error),
            }
        }
    }
    trace::forced(None, Some(&owner), count);
    if count > 0 && *engine.owner == owner {
        engine.renew_now(None);
    }
    failed.map(|()| count)
}

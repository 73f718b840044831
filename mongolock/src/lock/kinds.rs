//! The kinds of locks: what their callers get, and the methods that only one kind has.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Kind, Lock, LockKind};
use crate::options::Once;
use crate::protocol::Sight;
use crate::store::millis;
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, LockGuard, Permit, permit_id, task};

/// A distributed lock with its name and its options; made by [`LockProvider::lock`](crate::LockProvider::lock).
///
/// At most one process holds the lock of a name at a time, for as long as its lease lasts. Its methods are those of [`Lock`].
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let lock = provider.lock("report:1").expiry(Duration::from_secs(60)).acquire_timeout(Duration::from_secs(5));
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none(), "the lock is held");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type DistributedLock = Lock<One>;

/// The kind of a [`DistributedLock`]: one lock.
#[derive(Debug, Clone)]
pub enum One {}

impl LockKind for One {
    type Guard = LockGuard;
}

impl Kind for One {}

impl Lock<One> {
    /// The lock's name. A name of more than 1024 bytes, which cannot be acquired, is cut off.
    pub fn name(&self) -> &str {
        &self.target.names[0].text
    }

    /// Makes the work under the lock succeed at most once in each period of this length: 1 s to 366 days, in whole
    /// milliseconds.
    ///
    /// Periods are multiples of the length since 1970-01-01 UTC by the server's clock; those of a day begin at 00:00 UTC.
    /// After a success, the lock is marked as done until its period ends, instead of being released: by
    /// [`LockGuard::done`], by [`run`](Self::run) when the body succeeds, or by
    /// [`LockContext::commit_done`](crate::LockContext::commit_done). After an error, a panic or a loss it is released as
    /// usual, so that another process runs the work.
    ///
    /// - An acquire of a lock that is done returns [`LockError::Done`](crate::LockError::Done) at once.
    /// - While another process runs the work, an acquire waits for its end: until the end of the period, unless the lock
    ///   itself sets an [`acquire_timeout`](Self::acquire_timeout). If the period ends first, the result is
    ///   [`LockError::Timeout`](crate::LockError::Timeout).
    /// - A call belongs to the period in which it began. The server's clock in the first reply determines this period. If
    ///   the call gets the lock in a later period, the lock is released, and the body does not run: its success would mark
    ///   the later period as done.
    /// - If the period has ended when the work succeeds, the lock is released.
    /// - The work counts as done when the server has confirmed the mark. If it does not, [`run`](Self::run) and the
    ///   attribute return the error of [`LockGuard::done`] although the body has succeeded, also with
    ///   `on_lost = "continue"`: the work may run again. An error of the body comes first.
    ///
    /// Use it for jobs whose trigger is far from a boundary between two periods: with a trigger at 00:00 UTC and a period of
    /// a day, two days in a row can fall into one period and none into the next. For a schedule with ticks use
    /// [`once_at`](Self::once_at).
    ///
    /// The provider's `min_hold` does not apply, and one of the lock itself is refused. `await_release` does not apply to
    /// marks. A call that joins an enclosing hold writes no mark.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let provider = LockProvider::in_memory();
    /// let nightly = provider.lock("nightly").once_per(Duration::from_secs(24 * 60 * 60));
    /// for _ in 0..3 {
    ///     match nightly.run(async |_| Ok::<_, LockError>(())).await {
    ///         Ok(()) => println!("done now"),
    ///         Err(LockError::Done { by, .. }) => println!("done before, by {by}"),
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_per(mut self, period: Duration) -> Self {
        Arc::make_mut(&mut self.options).set_once(Once::PerPeriod(period));
        self
    }

    /// Makes the work under the lock succeed once: put the scheduled time of the work, its *tick*, into the name.
    ///
    /// It works as [`once_per`](Self::once_per), except that there are no periods: after a success the lock stays
    /// marked as done for the provider's [`retention`](crate::LockProviderBuilder::retention), which must be at least 1
    /// h. Choose a retention that is longer than the longest possible delay of a trigger. An acquire waits without a
    /// limit until another run ends, unless the lock itself sets an [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// The tick must be the *scheduled* time, which all instances have in common, and not the time at which an instance
    /// wakes up.
    ///
    /// ```
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let provider = LockProvider::in_memory();
    /// let tick = "2026-03-01T03:00Z";
    /// let lock = provider.lock(format!("nightly:{tick}")).once();
    /// let guard = lock.acquire().await?;
    /// // The work.
    /// guard.done().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(mut self) -> Self {
        let retention = self.engine.config.retention;
        Arc::make_mut(&mut self.options).set_once(Once::Kept(retention));
        self
    }

    /// Makes the work under the lock succeed once for this *scheduled* time, the tick of a schedule. The time becomes a
    /// part of the name, in UTC and in whole seconds, as in `nightly@2026-03-01T03:00:00Z`, and the lock has
    /// [`once`](Self::once).
    ///
    /// The tick is the time in the schedule, which all instances have in common. `SystemTime::now()` is no tick: each
    /// instance would do the work. An acquire returns [`LockError::InvalidOption`] for a time with a fraction of a
    /// second. An interval that begins with its process has no tick in common with other processes: use
    /// [`once_per`](Self::once_per) for it.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let provider = LockProvider::in_memory();
    /// // The scheduler says it; `DateTime<Utc>` of `chrono` is one as well.
    /// let tick = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_334_000);
    /// let lock = provider.lock("nightly").once_at(tick);
    /// assert_eq!(lock.name(), "nightly@2026-03-01T03:00:00Z");
    /// lock.run(async |_| Ok::<_, LockError>(())).await?;
    /// assert!(matches!(lock.acquire().await, Err(LockError::Done { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_at(mut self, tick: impl Into<SystemTime>) -> Self {
        self.target = self.target.at(tick.into());
        self.once()
    }
}

/// Several distributed locks that are acquired together, all or nothing; made by
/// [`LockProvider::lock_all`](crate::LockProvider::lock_all).
///
/// Two calls that need the same locks cannot block each other, in whatever order they list them: the names are sorted,
/// and each call acquires the locks in the order of their names. While a call waits for one lock, it keeps the locks
/// whose names sort before that one, and holds none of the later ones. A name that is given twice counts once.
///
/// The locks are ordinary ones: a set and a [`DistributedLock`](crate::DistributedLock) of one of its names exclude
/// each other, also in other programs. All locks of a hold have one lease. It is renewed and released as a whole, and
/// lost as a whole when one of them is lost.
///
/// If all locks are free, acquiring them costs two commands, however many there are, and releasing them one. Its methods are
/// those of [`Lock`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let guard = provider.lock_all(["account:7", "account:4"]).acquire().await?;
/// assert!(guard.names().eq(["account:4", "account:7"]));
/// assert!(provider.lock("account:4").try_acquire().await?.is_none(), "it is held");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type LockSet = Lock<Several>;

/// The kind of a [`LockSet`]: several locks, all or nothing.
#[derive(Debug, Clone)]
pub enum Several {}

impl LockKind for Several {
    type Guard = LockGuard;
}

impl Kind for Several {}

impl Lock<Several> {
    /// The names of the locks in their order, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.target.names.iter().map(|name| &*name.text)
    }
}

/// A distributed semaphore: at most a number of holders at the same time, in all processes; made by
/// [`LockProvider::semaphore`](crate::LockProvider::semaphore).
///
/// Each permit is an ordinary lock with a document of its own, so there is no counter that could be wrong after a
/// crash: the permit of a crashed holder is free when its lease has expired. A semaphore and a
/// [`DistributedLock`](crate::DistributedLock) of the same name are independent of each other.
///
/// All callers should use the same number of permits. If they differ, there are never more holders than the greatest of
/// these numbers, and a caller with a smaller one reports it once (`mongolock.permits_differ`).
///
/// While permits are free, acquiring one usually costs one command: a permit is chosen at random, and if it is held, a
/// query shows which permits are free. Waiters are woken by the release of any permit.
///
/// A permit has **no fencing token**, because tokens of different permits cannot be compared. If a stale holder
/// must not write, use a lock for that data as well, or let the data itself refuse the write, by comparing
/// a version number that was read earlier.
///
/// The collection must have simple collation, which is MongoDB's default;
/// [`index_state`](crate::LockAdmin::index_state) reports another one. Its methods are those of [`Lock`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let exports = provider.semaphore("export", 2);
/// let first = exports.acquire().await?;
/// let second = exports.acquire().await?;
/// assert!(exports.try_acquire().await?.is_none(), "both permits are held");
/// first.release().await?;
/// assert_eq!(exports.available().await?, 1);
/// second.release().await?;
/// # Ok(())
/// # }
/// ```
pub type Semaphore = Lock<Permits>;

/// The kind of a [`Semaphore`]: a number of permits; each holder has one.
#[derive(Debug, Clone)]
pub enum Permits {}

impl LockKind for Permits {
    type Guard = Permit;
}

impl Kind for Permits {}

impl Lock<Permits> {
    /// The semaphore's name.
    pub fn name(&self) -> &str {
        &self.target.names[0].text
    }

    /// The number of free permits at the time of the query. Another caller may acquire them right after it.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidName`] and [`LockError::InvalidOption`] as [`acquire`](Self::acquire), and
    /// [`LockError::Mongo`] if MongoDB refuses the query or does not reply.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn available(&self) -> Result<u32, LockError> {
        self.check()?;
        let (store, permits) = (
            Arc::clone(&self.engine.store),
            self.target.permits.expect("a semaphore has a number of permits"),
        );
        store.check()?;
        let group = permit_id::group(self.name());
        let look = async move { store.look(vec![group], COMMAND_LIMIT).await };
        let found = task::start(task::within(COMMAND_LIMIT, look)).await?;
        let margin = millis(self.engine.config.options.takeover_margin);
        let is_taken = |(name, sight): &(Arc<str>, Sight)| {
            permit_id::number(name).is_some_and(|number| number < permits) && !sight.is_free(margin)
        };
        let taken = found.iter().filter(|permit| is_taken(permit)).count();
        Ok(permits.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)))
    }
}

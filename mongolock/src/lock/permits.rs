use std::sync::Arc;

use super::{Kind, Lock, LockKind};
use crate::protocol::Sight;
use crate::store::millis;
use crate::timing::COMMAND_LIMIT;
use crate::{LockError, Permit, permit_id, task};

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
            self.target.permits.unwrap_or_default(),
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

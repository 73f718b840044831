use super::{Kind, Lock, LockKind};
use crate::LockGuard;

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

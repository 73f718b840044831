use std::fmt;
use std::time::Duration;

use crate::context::LockContext;
use crate::{FencingToken, LockError, LockGuard};

/// Several held locks; made by [`LockSet`](crate::LockSet). Their common lease is renewed in the background until the guard
/// is released or dropped.
///
/// [`release`](Self::release) waits for the server's confirmation and returns an error if one of the locks was not held to
/// the end. Dropping the guard also releases the locks, in the background; it may be dropped on any thread, inside or
/// outside a runtime. If the runtime ends before the release is sent, the lease expires on its own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let guard = provider.lock_all(["report:1", "report:2"]).await?;
/// for name in guard.names() {
///     println!("{name} is held with token {:?}", guard.fencing_token_of(name));
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the locks are held only while their guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the locks at once"]
pub struct LockSetGuard(LockGuard);

impl LockSetGuard {
    pub(crate) fn new(guard: LockGuard) -> Self {
        Self(guard)
    }

    /// The names of the locks in their order, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.0.lease().tokens().map(|(name, _)| &**name)
    }

    /// The fencing token of this hold for one of its names; `None` for another name. Tokens of different names are not
    /// ordered among each other.
    #[must_use]
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        self.0.lease().token_of(name)
    }

    /// The context of this hold, for code that needs the fencing tokens or must notice the loss of a lock.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.0.context()
    }

    /// Whether one of the locks is no longer held: no renewal was confirmed in time, a lock was released by force or its
    /// document changed, or the provider was shut down.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits until one of the locks is lost. It ends at the latest when the lease ends by this process's own clock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// The time until the lease ends if it is not renewed again; zero once one of the locks is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Checks that all locks are still held, as [`LockGuard::ensure_held`] does.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lease is over.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.0.ensure_held()
    }

    /// Releases all locks with one command, and waits until the server confirms it.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::release`]; [`LockError::Lost`] if one of the locks was lost before. The others are released in
    /// any case.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once the future was polled, the release goes on even if the future is dropped. Before that,
    /// dropping the future drops the guard, which releases the locks in the background.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled. The locks are then released in the background.
    pub async fn release(self) -> Result<(), LockError> {
        self.0.release().await
    }
}

impl fmt::Debug for LockSetGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockSetGuard")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use crate::handle::Detached;
use crate::options::{check_owner, check_ttl};
use crate::{LeaseHandle, LockError, LockGuard};

/// A hold that is detached when this is awaited; made by [`LockGuard::detach`] and [`Permit::detach`](crate::Permit::detach).
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let guard = provider.lock("document:42").await?;
/// let detaching = guard.detach(Duration::from_secs(30 * 60)).owner("session:8c0f");
/// let stored = detaching.handle(); // Stored first, so that a crash in the next step loses nothing.
/// let handle = detaching.await?;
/// assert_eq!(handle, stored);
/// assert_eq!(provider.admin().release_owner("session:8c0f").await?, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is detached before it is awaited, and dropping it releases the lock"]
pub struct Detach {
    guard: LockGuard,
    ttl: Duration,
    /// The owner of the detached lease; `None` keeps the present owner.
    owner: Option<String>,
    handle: OnceLock<LeaseHandle>,
}

impl Detach {
    pub(crate) fn new(guard: LockGuard, ttl: Duration) -> Self {
        Self {
            guard,
            ttl,
            owner: None,
            handle: OnceLock::new(),
        }
    }

    /// Sets the owner of the detached lease, for operators and for
    /// [`release_owner`](crate::LockAdmin::release_owner): 1 to 256 bytes without control characters, which do not begin with
    /// `done:`. By default it is the present owner of the lease.
    ///
    /// It stays the owner when another process resumes the lease and detaches it again: a session that ends can release
    /// all its locks, also those of a save in progress. Setting another owner changes the [`handle`](Self::handle).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self.handle = OnceLock::new();
        self
    }

    /// The handle that awaiting this value returns. Store it before you await. Until the lease is detached,
    /// [`resume`](crate::LockProvider::resume) with this handle returns [`LockError::Lost`].
    #[must_use]
    pub fn handle(&self) -> LeaseHandle {
        self.handle.get_or_init(|| self.new_handle()).clone()
    }

    fn new_handle(&self) -> LeaseHandle {
        let (lease, engine) = (self.guard.lease(), self.guard.engine());
        LeaseHandle::new(Detached {
            home: engine.store.home(),
            ids: lease.tokens().map(|(id, _)| &**id).collect(),
            title: lease.title(),
            owner: self.owner.as_deref().unwrap_or(lease.owner()),
            tokens: lease.tokens().map(|(_, token)| token).collect(),
            ttl: self.ttl,
            min_hold: lease.min_hold(),
            once: lease.options().once,
        })
    }

    async fn detach(mut self) -> Result<LeaseHandle, LockError> {
        check_ttl(self.ttl)?;
        self.owner.as_deref().map_or(Ok(()), check_owner)?;
        let handle = self.handle();
        self.guard.detach_by_ref(&handle).await?;
        Ok(handle)
    }
}

/// Detaches the lease. See [`LockGuard::detach`].
impl IntoFuture for Detach {
    type Output = Result<LeaseHandle, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.detach())
    }
}

impl fmt::Debug for Detach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detach")
            .field("guard", &self.guard)
            .field("ttl", &self.ttl)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

use std::time::Duration;

use crate::LockError;

/// The holder of a lock that a call could not acquire, for the function of `on_busy = path`.
///
/// The function gets a reference to each argument of the call, and then this value; what it returns, the call returns.
///
/// ```
/// use mongolock::{Busy, LockError, LockProvider, distributed_lock};
///
/// #[distributed_lock(name = "report:<id>", on_busy = in_progress)]
/// async fn rebuild_report(id: u64) -> Result<String, LockError> {
///     Ok(format!("report {id} is rebuilt"))
/// }
///
/// fn in_progress(id: &u64, busy: &Busy) -> Result<String, LockError> {
///     let holder = busy.holder.as_deref().unwrap_or("somebody");
///     Ok(format!("{holder} rebuilds report {id}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let provider = LockProvider::in_memory().to_builder().owner("billing-1").build()?;
/// let guard = provider.lock("report:7").await?;
/// assert_eq!(provider.scope(rebuild_report(7)).await?, "billing-1 rebuilds report 7");
/// # guard.release().await
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The lock's name.
    pub name: String,
    /// The owner of the lease that the last attempt found; `None` if no reply named one, as in
    /// [`LockError::Timeout`].
    pub holder: Option<String>,
    /// How long that lease still runs unless it is renewed, as in [`LockError::Timeout`].
    pub remaining: Option<Duration>,
}

impl Busy {
    /// The value for an error that says that the lock is busy; every other error is returned.
    pub(crate) fn from_error(error: LockError) -> Result<Self, LockError> {
        match error {
            LockError::Busy {
                name,
                holder,
                remaining,
            }
            | LockError::Timeout {
                name,
                holder,
                remaining,
                ..
            } => Ok(Self {
                name,
                holder,
                remaining,
            }),
            other => Err(other),
        }
    }
}

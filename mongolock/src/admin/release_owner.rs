use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::request;
use crate::engine::Engine;
use crate::store::{SeenHold, Selected};
use crate::{LockError, task, trace};

/// The number of locks that are released at the same time.
const AT_ONCE: usize = 16;

/// A request that releases all locks of an owner by force; made by
/// [`LockAdmin::release_owner`](crate::LockAdmin::release_owner).
///
/// Awaiting it sends the commands, and gives `Result<u64, LockError>`: the number of locks that were released, with those that
/// a minimum hold kept. Marks of finished work stay.
///
/// # Errors
///
/// [`LockError::Mongo`] if MongoDB refuses the request, or has not confirmed it within 30 s: none, some or all of
/// the locks may then be released. The driver does not repeat these commands by itself, for instance after a
/// failover. Repeating it is safe, and returns the number of the remaining locks.
///
/// # Cancel safety
///
/// Once polled, the request runs to its end in the background, even if the future is dropped. Before that, dropping it
/// sends nothing.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
#[must_use = "nothing is released before the request is awaited"]
pub struct ReleaseOwner {
    engine: Arc<Engine>,
    owner: String,
}

impl ReleaseOwner {
    pub(super) fn new(engine: &Arc<Engine>, owner: &str) -> Self {
        Self {
            engine: Arc::clone(engine),
            owner: owner.to_owned(),
        }
    }

    async fn send(self) -> Result<u64, LockError> {
        let Self { engine, owner } = self;
        let margin = engine.config.options.takeover_margin;
        let holds = engine.store.seen_holds(Selected::Owner(&owner), margin).await?;
        let (mut count, mut failed) = (0, Ok(()));
        for holds in holds.chunks(AT_ONCE) {
            let releases = holds.iter().map(|hold| end(&engine, hold.clone()));
            for release in releases.collect::<Vec<_>>() {
                match release.await {
                    Ok(was_released) => count += u64::from(was_released),
                    Err(error) => failed = Err(error),
                }
            }
            if failed.is_err() {
                break;
            }
        }
        trace::owner_forced(&owner, count);
        if count > 0 && *engine.owner == owner {
            engine.renew_now(None);
        }
        failed.map(|()| count)
    }
}

/// Starts the release of this hold.
fn end(engine: &Engine, hold: SeenHold) -> impl Future<Output = Result<bool, LockError>> + use<> {
    let store = Arc::clone(&engine.store);
    task::start(async move { store.force_release(&hold).await })
}

impl IntoFuture for ReleaseOwner {
    type Output = Result<u64, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(request("forced release", self.send()))
    }
}

impl fmt::Debug for ReleaseOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseOwner")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

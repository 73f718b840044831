use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::{force_release, request};
use crate::engine::Engine;
use crate::options::check_note;
use crate::store::{EndedHold, HoldsOf, SeenHold};
use crate::{LockError, task, trace};

/// The number of locks that are released at the same time, and noted with one command.
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
/// failover. Repeating it is safe, and returns the number of the remaining locks. [`LockError::InvalidOption`] if the
/// [reason](Self::reason) is too long: nothing is released then.
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
    /// Why the locks are released.
    reason: Option<String>,
}

impl ReleaseOwner {
    pub(super) fn new(engine: &Arc<Engine>, owner: &str) -> Self {
        Self {
            engine: Arc::clone(engine),
            owner: owner.to_owned(),
            reason: None,
        }
    }

    /// Sets why the locks are released, as [`ForceRelease::reason`](crate::ForceRelease::reason) does: at most 256 bytes; an
    /// empty text is no reason.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let stuck = provider.to_builder().owner("billing-1").build()?.lock("report:1").await?;
    /// assert_eq!(provider.admin().release_owner("billing-1").reason("the machine is gone").await?, 1);
    /// let lost = stuck.release().await.unwrap_err().to_string();
    /// assert!(lost.ends_with("the machine is gone"), "{lost}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into()).filter(|reason: &String| !reason.is_empty());
        self
    }

    async fn send(self) -> Result<u64, LockError> {
        let Self {
            engine,
            owner,
            reason,
        } = self;
        check_note("reason", reason.as_deref())?;
        let margin = engine.config.options.takeover_margin;
        let holds = engine.store.seen_holds(HoldsOf::Owner(&owner), margin).await?;
        let (mut count, mut is_noting, mut failed) = (0, true, Ok(()));
        for holds in holds.chunks(AT_ONCE) {
            let releases = holds.iter().map(|hold| end(&engine, hold.clone()));
            let mut ended = Vec::new();
            for release in releases.collect::<Vec<_>>() {
                match release.await {
                    Ok(hold) => ended.extend(hold),
                    Err(error) => failed = Err(error),
                }
            }
            count += ended.len() as u64;
            // The holders ask for the notes soon. After a failure the other releases need not wait for more of them.
            is_noting = is_noting && force_release::note(&engine, &ended, reason.clone()).await;
            if failed.is_err() {
                break;
            }
        }
        trace::owner_forced(&owner, count);
        if count > 0 && *engine.owner == owner {
            engine.renewer.renew_now(|_| true);
        }
        failed.map(|()| count)
    }
}

/// Begins to end this hold.
fn end(
    engine: &Engine,
    hold: SeenHold,
) -> impl Future<Output = Result<Option<EndedHold>, LockError>> + use<> {
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
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use crate::engine::Engine;
use crate::protocol::Value;
use crate::store::Looked;
use crate::{FencingToken, LockError, permit_id, task, trace};

/// A request that releases a lock by force; made by [`LockAdmin::force_release`](crate::LockAdmin::force_release).
///
/// Awaiting it reads the document, releases what it has read, and gives `Result<bool, LockError>`: `true` if the
/// request has ended a lease, a minimum hold, a mark or a takeover margin, `false` if there was nothing to end, or if
/// it ended by itself meanwhile. It also repairs a damaged document. With [`only_if`](Self::only_if) it ends only the
/// hold that the operator has seen:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let stuck = provider.lock("report:1").await?;
/// let admin = provider.admin();
/// let seen = admin.get("report:1").await?.expect("the lock is held");
///
/// // Meanwhile the holder finishes its work, and the next one acquires the lock.
/// stuck.release().await?;
/// let next = provider.lock("report:1").await?;
///
/// let was_released = admin.force_release("report:1").only_if(seen.fencing_token).await?;
/// assert!(!was_released && !next.is_lost(), "another hold is left alone");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`LockError::Mongo`] if MongoDB refuses the command, or has not confirmed it within 30 s: the lock may be released
/// or not. Repeating the request is safe with `only_if`. Without it, a repeated request can also end a hold that has
/// begun in the meantime, because it reads the document again. [`LockError::InvalidName`] if the `Display` of the name returns
/// an error: nothing is released then.
///
/// # Cancel safety
///
/// Once polled, the request runs to its end in the background, even if the future is dropped. Before that, dropping it
/// sends nothing.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
#[derive(Debug)]
#[must_use = "nothing is released before the request is awaited"]
pub struct ForceRelease {
    pub(super) engine: Arc<Engine>,
    /// The name, or the error of its `Display`.
    pub(super) name: Result<String, LockError>,
    /// The fencing token that the document must have; `None` releases any hold.
    pub(super) only_if: Option<FencingToken>,
    /// The number of the permit, if the name is that of a semaphore.
    pub(super) permit: Option<u32>,
}

impl ForceRelease {
    /// Releases this permit of the semaphore instead of the lock of that name; the number is that of
    /// [`LockInfo::permit`](crate::LockInfo::permit).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let stuck = provider.semaphore("export", 5).await?;
    /// assert!(provider.admin().force_release("export").permit(stuck.number()).await?);
    /// assert_eq!(provider.semaphore("export", 5).available().await?, 5);
    /// # drop(stuck);
    /// # Ok(())
    /// # }
    /// ```
    pub fn permit(mut self, number: u32) -> Self {
        self.permit = Some(number);
        self
    }

    /// Releases the lock only if its fencing token is this one, from [`LockInfo::fencing_token`]. With any other token
    /// nothing is released, and the result is `false`, as for a lock that is free.
    ///
    /// The server compares and releases in one step, so a lease that was acquired later is never ended.
    ///
    /// Take the token from [`LockInfo::fencing_token`]: the token of a guard, or one in a log, can be smaller. Callers of
    /// one process that hand the lock over among themselves share one lease, and the document has the last token that is
    /// reserved for them. The request ends this lease, so the present holder among them loses the lock.
    ///
    /// [`LockInfo::fencing_token`]: crate::LockInfo::fencing_token
    pub fn only_if(mut self, token: FencingToken) -> Self {
        self.only_if = Some(token);
        self
    }

    async fn send(self) -> Result<bool, LockError> {
        let (engine, name) = (self.engine, self.name?);
        let number = self.permit;
        let name = number.map_or_else(|| Arc::from(&*name), |number| permit_id::new(&name, number));
        let margin = engine.config.options.takeover_margin;
        let looked = Looked::Names(vec![name]);
        let mut stuck = engine.store.stuck(&looked, margin).await?;
        if let Some(token) = self.only_if {
            stuck.retain(|(_, sight)| sight.document.token == Value::Long(token.get()));
        }
        let Some((name, sight)) = stuck.pop() else {
            return Ok(false);
        };
        let was_released = engine.store.force_release(&name, sight).await?;
        if was_released {
            trace::forced(Some(&name), None, 1);
            engine.renew_now(Some(&name));
        }
        Ok(was_released)
    }
}

impl IntoFuture for ForceRelease {
    type Output = Result<bool, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(task::request("forced release", self.send()))
    }
}

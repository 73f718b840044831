use std::future::Future;
use std::sync::Arc;

use super::Lock;
use crate::context::LockContext;
use crate::core::Wanted;
use crate::engine::{Engine, Hold, Lease};
use crate::name::RenderedName;
use crate::options::OnBusy;
use crate::run::{OnLost, RunningHold};
use crate::{LockError, LockGuard, Permit};

/// What a [`Lock`] is about: [one](super::One) lock, [several](super::Several) ones, or [permits](super::Permits). No other
/// crate can implement it.
#[expect(
    private_bounds,
    reason = "what the kinds do is not public: no other type can be one"
)]
pub trait LockKind: Kind {
    /// What a caller holds: a [`LockGuard`], or a [`Permit`] of a semaphore.
    type Guard: HeldAs + Send + 'static;
}

/// What is held, in the type that callers get.
pub(crate) trait HeldAs {
    fn new(hold: Hold) -> Self;
}

impl HeldAs for LockGuard {
    fn new(hold: Hold) -> Self {
        Self::new(hold)
    }
}

impl HeldAs for Permit {
    fn new(hold: Hold) -> Self {
        Self::new(LockGuard::new(hold))
    }
}

/// What one kind has of its own.
pub(crate) trait Kind: Clone + Send + Sync + Unpin + Sized + 'static {
    /// The name of the type that users write.
    const NAME: &'static str;

    /// The names, each of which is checked.
    fn names(&self) -> &[RenderedName];

    /// Returns an error for a number that is out of its bounds.
    fn check(&self) -> Result<(), LockError> {
        Ok(())
    }

    /// The place of the name that stands for it in errors, metrics and spans.
    fn title(&self) -> usize {
        0
    }

    /// What the core is asked for.
    fn wanted(&self) -> Wanted;

    /// The enclosing call that holds this name, and its lease.
    fn enclosing(engine: &Arc<Engine>, name: &str) -> Option<(LockContext, Arc<Lease>)> {
        LockContext::enclosing(engine, name)
    }

    /// Acquires it for a body, or joins the holds that the caller already runs under.
    fn hold(
        lock: &Lock<Self>,
        on_busy: OnBusy,
        on_lost: OnLost,
    ) -> impl Future<Output = Result<RunningHold, LockError>> + Send + Sync
    where
        Self: LockKind,
    {
        async move {
            for name in lock.kind.names() {
                if let Some((outer, lease)) = Self::enclosing(&lock.engine, name.text()) {
                    return RunningHold::join(&outer, lease, name, on_busy, on_lost).await;
                }
            }
            lock.own_hold(on_busy, on_lost).await
        }
    }
}

use std::fmt::DebugStruct;
use std::future::Future;
use std::sync::Arc;

use super::Lock;
use crate::context::LockContext;
use crate::engine::{Engine, Lease};
use crate::name::RenderedName;
use crate::options::OnBusy;
use crate::run::{OnLost, RunningHold};
use crate::{LockError, LockGuard, Permit};

/// The kind of a [`Lock`]: [one](super::One) lock, [several](super::Several) locks, or [permits](super::Permits). No
/// other crate can implement it.
#[expect(
    private_bounds,
    reason = "what the kinds do is not public: no other type can be one"
)]
pub trait LockKind: Kind {
    /// The type of a hold for its caller: a [`LockGuard`], or a [`Permit`] of a semaphore.
    type Guard: HeldAs + Send + 'static;
}

/// A hold as the type that callers get.
pub(crate) trait HeldAs {
    fn new(guard: LockGuard) -> Self;
}

impl HeldAs for LockGuard {
    fn new(guard: LockGuard) -> Self {
        guard
    }
}

impl HeldAs for Permit {
    fn new(guard: LockGuard) -> Self {
        Self::new(guard)
    }
}

/// The parts in which the kinds differ.
pub(crate) trait Kind: Clone + Send + Sync + Unpin + Sized + 'static {
    /// The name of the type that users write.
    const NAME: &'static str;

    /// The names of the locks.
    fn names(&self) -> &[RenderedName];

    /// Writes the fields that distinguish it from others of its kind.
    fn debug(&self, debug: &mut DebugStruct<'_, '_>);

    /// Returns an error for a number that is out of its bounds.
    fn check(&self) -> Result<(), LockError> {
        Ok(())
    }

    /// The index of the name that represents it in errors, metrics and spans.
    fn title(&self) -> usize {
        0
    }

    /// The number of permits, if it is a semaphore.
    fn permits(&self) -> Option<u32> {
        None
    }

    /// The enclosing call that holds this name, and its lease.
    fn enclosing(engine: &Arc<Engine>, name: &str) -> Option<(LockContext, Arc<Lease>)> {
        LockContext::enclosing(engine, name)
    }

    /// Acquires the lock for a body, or joins the holds that the caller already runs under.
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

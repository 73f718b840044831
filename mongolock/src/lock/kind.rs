use crate::core::Wanted;
use crate::engine::{Hold, Lease};
use crate::name::RenderedName;
use crate::{LockError, LockGuard, Permit};

/// The kind of a [`Lock`](super::Lock): [one](super::One) lock, [several](super::Several) locks, or [permits](super::Permits). No
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

/// The parts in which the kinds differ.
pub(crate) trait Kind: Clone + Send + Sync + Unpin + Sized + 'static {
    /// The name of the type that users write.
    const NAME: &'static str;

    /// The names of the locks.
    fn names(&self) -> &[RenderedName];

    /// Returns an error for a number that is out of its bounds.
    fn check(&self) -> Result<(), LockError> {
        Ok(())
    }

    /// The index of the name that represents it in errors, metrics and spans.
    fn title(&self) -> usize {
        0
    }

    /// What the core is asked for.
    fn wanted(&self) -> Wanted;

    /// Whether this is the lease of a hold of the name.
    fn is_hold(lease: &Lease, name: &str) -> bool {
        lease.token_of(name).is_some()
    }
}

use std::future::Future;

use crate::{DistributedLock, LockContext, LockError, LockGuard, LockOutput, LockSet, Permit, Semaphore};

/// What the calls of a blocking provider take: a lock, a set of locks or a semaphore.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lock, no set of locks and no semaphore",
    label = "expected `&DistributedLock`, `&LockSet` or `&Semaphore`, as `lock`, `lock_all` and `semaphore` return them"
)]
pub trait Handle {
    type Guard;

    fn acquire(&self) -> impl Future<Output = Result<Self::Guard, LockError>>;

    fn try_acquire(&self) -> impl Future<Output = Result<Option<Self::Guard>, LockError>>;

    fn run<T: LockOutput>(&self, body: impl FnOnce(LockContext) -> T) -> impl Future<Output = T>;
}

/// Implements the trait by the methods of the same names.
macro_rules! handles {
    ($($handle:ty: $guard:ty),+) => {$(
        impl Handle for $handle {
            type Guard = $guard;

            fn acquire(&self) -> impl Future<Output = Result<$guard, LockError>> {
                <$handle>::acquire(self)
            }

            fn try_acquire(&self) -> impl Future<Output = Result<Option<$guard>, LockError>> {
                <$handle>::try_acquire(self)
            }

            fn run<T: LockOutput>(&self, body: impl FnOnce(LockContext) -> T) -> impl Future<Output = T> {
                <$handle>::run(self, async move |context| body(context))
            }
        }
    )+};
}

handles! { DistributedLock: LockGuard, LockSet: LockGuard, Semaphore: Permit }

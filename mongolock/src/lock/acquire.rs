use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::kind::HeldAs;
use super::{Lock, LockKind};
use crate::LockError;
use crate::engine::AcquireCall;
use crate::options::OnBusy;

/// The future of [`Lock::acquire`]. It contains the lock until its first poll, and then the call: an `async` block
/// would contain both.
pub(super) enum Acquire<K> {
    New(Lock<K>),
    Begun(AcquireCall),
    Ended,
}

impl<K: LockKind> Future for Acquire<K> {
    type Output = Result<K::Guard, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Self::New(lock) = &*self {
            let begun = lock.begin_alone(OnBusy::Wait);
            self.set(Self::Ended);
            self.set(Self::Begun(begun?));
        }
        let Self::Begun(call) = &mut *self else {
            unreachable!("polled after it was ready")
        };
        let acquired = ready!(Pin::new(call).poll(cx));
        self.set(Self::Ended);
        Poll::Ready(acquired.map(K::Guard::new))
    }
}

//! A call without its body: the type of the body is not part of it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::hold::{AnyBody, BodyEnd, RunningHold};
use crate::{LockContext, LockError};

/// A call without its body. It is on the heap and behind a `dyn`: the future of an annotated function contains only a
/// pointer to it, and the compiler's proofs and layouts for nested calls end there.
pub(super) trait LockedCall: Send + Sync {
    /// Acquires the lock, or joins the hold of the enclosing call.
    fn poll_acquired(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), LockError>>;

    /// Runs the body under the lock, and then releases the lock; an error is what the call returns instead of the value
    /// of the body.
    fn poll_body(
        self: Pin<&mut Self>,
        body: &mut dyn AnyBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), LockError>>;

    /// Drops the body of a call that is cancelled, under its lock.
    fn drop_body(self: Pin<&mut Self>, body: &mut dyn AnyBody);

    /// The context of the lock.
    fn context(self: Pin<&Self>) -> LockContext;
}

/// The future of the lock of a call.
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring(Option<Pin<Box<dyn LockedCall>>>);

/// The lock of a call: one that it has acquired itself, or that of the enclosing call.
pub struct Acquired(pub(super) Pin<Box<dyn LockedCall>>);

impl Acquiring {
    /// A call that gets its lock by this future.
    pub(crate) fn new(
        acquiring: impl Future<Output = Result<RunningHold, LockError>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Box::pin(StagedCall::Acquiring {
            acquiring,
            release: RunningHold::release,
        })))
    }
}

impl Future for Acquiring {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.0.as_mut().expect("polled after it was ready");
        let acquired = ready!(call.as_mut().poll_acquired(cx));
        let call = self.0.take();
        Poll::Ready(acquired.map(|()| Acquired(call.expect("it has just been polled"))))
    }
}

impl Acquired {
    /// The context of the lock, which the body gets as an argument.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.0.as_ref().context()
    }
}

pin_project! {
    /// A call that gets its lock by the future `A`, and releases it by the future `R`. The stages share one place in memory.
    #[project = StageProjection]
    #[project_ref = StageRef]
    enum StagedCall<A, R> {
        Acquiring { #[pin] acquiring: A, release: fn(RunningHold, BodyEnd) -> R },
        Running { hold: Option<RunningHold>, release: fn(RunningHold, BodyEnd) -> R },
        Releasing { #[pin] releasing: R },
        Ended,
    }
}

impl<A, R> LockedCall for StagedCall<A, R>
where
    A: Future<Output = Result<RunningHold, LockError>> + Send + Sync,
    R: Future<Output = Result<(), LockError>> + Send + Sync,
{
    fn poll_acquired(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        let StageProjection::Acquiring { acquiring, release } = self.as_mut().project() else {
            unreachable!("the lock is acquired once")
        };
        let (acquired, release) = (ready!(acquiring.poll(cx)), *release);
        self.set(Self::Ended);
        let hold = Some(acquired?);
        self.set(Self::Running { hold, release });
        Poll::Ready(Ok(()))
    }

    fn poll_body(
        mut self: Pin<&mut Self>,
        body: &mut dyn AnyBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), LockError>> {
        if let StageProjection::Running { hold: held, release } = self.as_mut().project()
            && let Some(hold) = held
        {
            let end = ready!(hold.poll_body(cx, body));
            let releasing = held.take().map(|hold| release(hold, end));
            self.set(releasing.map_or(Self::Ended, |releasing| Self::Releasing { releasing }));
        }
        let StageProjection::Releasing { releasing } = self.as_mut().project() else {
            unreachable!("polled before the lock was acquired, or after it was released")
        };
        let ended = ready!(releasing.poll(cx));
        self.set(Self::Ended);
        Poll::Ready(ended)
    }

    fn drop_body(self: Pin<&mut Self>, body: &mut dyn AnyBody) {
        if let StageProjection::Running { hold: Some(hold), .. } = self.project() {
            hold.drop_body(body);
        }
    }

    fn context(self: Pin<&Self>) -> LockContext {
        match self.project_ref() {
            StageRef::Running { hold: Some(hold), .. } => hold.context().clone(),
            _ => unreachable!("the body has not begun"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::LockProvider;
    use crate::options::OnBusy;
    use crate::run::{Acquiring, OnLost};

    /// Allocators have a fast path for small values; that of glibc ends at 1032 bytes.
    #[test]
    fn a_call_is_small() {
        let lock = LockProvider::in_memory().lock("small");
        let call = Acquiring::new(async move { lock.hold(OnBusy::Wait, OnLost::Cancel).await });
        let size = call.0.as_deref().map(size_of_val);
        assert!(size.is_some_and(|size| size <= 1024), "{size:?}");
    }
}

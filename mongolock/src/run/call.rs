//! A call without its body: the type of the body is not part of it.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::hold::{AnyBody, RunningHold};
use crate::{LockContext, LockError};

/// A step of a call, on the heap and behind a `dyn`.
type BoxedStep<T> = Pin<Box<dyn Future<Output = Result<T, LockError>> + Send + Sync>>;

/// A call that has its lock, without its body.
pub(super) trait LockedCall: Send + Sync {
    /// Runs the body under the lock, and then releases the lock; an error is what the call returns instead of the value
    /// of the body.
    fn poll_body(&mut self, body: &mut dyn AnyBody, cx: &mut Context<'_>) -> Poll<Result<(), LockError>>;

    /// Drops the body of a call that is cancelled, under its lock.
    fn drop_body(&mut self, body: &mut dyn AnyBody);

    /// The context of the lock.
    fn context(&self) -> LockContext;
}

// The future of an annotated function contains only a pointer to a value on the heap, behind a `dyn`: the compiler's proofs and
// layouts for nested calls end there.

/// The future of the lock of a call.
pub type Acquiring = BoxedStep<Acquired>;

/// The lock of a call: one that it has acquired itself, or that of the enclosing call.
pub struct Acquired(pub(super) Box<dyn LockedCall>);

impl Acquired {
    pub(crate) fn new(hold: RunningHold) -> Self {
        Self(Box::new(CallStage::Running(hold)))
    }

    /// The context of the lock.
    pub fn context(&self) -> LockContext {
        self.0.context()
    }
}

/// How far a call with its lock has come.
enum CallStage {
    Running(RunningHold),
    Releasing(BoxedStep<()>),
    Ended,
}

impl LockedCall for CallStage {
    fn poll_body(&mut self, body: &mut dyn AnyBody, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        if let Self::Running(hold) = self {
            let end = ready!(hold.poll_body(cx, body));
            if let Self::Running(hold) = mem::replace(self, Self::Ended) {
                *self = Self::Releasing(Box::pin(hold.release(end)));
            }
        }
        let Self::Releasing(releasing) = self else {
            unreachable!("polled after it was ready")
        };
        let ended = ready!(releasing.as_mut().poll(cx));
        *self = Self::Ended;
        Poll::Ready(ended)
    }

    fn drop_body(&mut self, body: &mut dyn AnyBody) {
        if let Self::Running(hold) = self {
            hold.drop_body(body);
        }
    }

    fn context(&self) -> LockContext {
        match self {
            Self::Running(hold) => hold.context().clone(),
            _ => unreachable!("the body has not begun"),
        }
    }
}

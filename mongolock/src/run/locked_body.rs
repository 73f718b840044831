//! A body under its lock. Every annotated function compiles its own copy of this code, so it contains only what depends
//! on the type of the body.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::call::{Acquired, AnyBody};
use crate::output::Output;

pin_project! {
    /// The body of a call with its captured values, and then its value. The call pins it and keeps a reference to it: a
    /// body within another type would count once more for the compiler's recursion limit.
    #[project = BodyProjection]
    #[allow(missing_docs, reason = "`pin_project` takes no documentation of a field")]
    pub enum Body<B, T> {
        /// The body has not ended.
        Running {
            #[pin]
            body: B,
        },
        /// The body has ended, or was dropped.
        Ended {
            value: Option<T>,
        },
    }
}

impl<B: Future> Body<B, B::Output> {
    /// A body that runs.
    pub fn new(body: B) -> Self {
        Self::Running { body }
    }
}

/// A call from the first step of its body to the end of the release.
#[must_use = "futures do nothing unless polled"]
pub struct LockedBody<'a, B: Future<Output = T>, T> {
    call: Acquired,
    body: BodyRef<'a, B, T>,
}

/// The body, and the function that puts an error into its value.
struct BodyRef<'a, B, T> {
    body: Pin<&'a mut Body<B, T>>,
    output: Output<T>,
}

impl Acquired {
    /// Runs the body under the lock, releases the lock, and determines what the call returns.
    pub fn run<B: Future>(
        self,
        body: Pin<&mut Body<B, B::Output>>,
        output: Output<B::Output>,
    ) -> LockedBody<'_, B, B::Output> {
        LockedBody {
            call: self,
            body: BodyRef { body, output },
        }
    }
}

impl<B, T> BodyRef<'_, B, T> {
    fn take_value(&mut self) -> T {
        let BodyProjection::Ended { value } = self.body.as_mut().project() else {
            unreachable!("the body has ended")
        };
        value.take().expect("the value is taken once")
    }
}

impl<B: Future<Output = T>, T> AnyBody for BodyRef<'_, B, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let BodyProjection::Running { body } = self.body.as_mut().project() else {
            unreachable!("polled after it was ready")
        };
        let value = ready!(body.poll(cx));
        let is_success = (self.output.is_success)(&value);
        self.body.set(Body::Ended { value: Some(value) });
        Poll::Ready(is_success)
    }

    fn drop_unfinished(&mut self) {
        self.body.set(Body::Ended { value: None });
    }
}

impl<B: Future<Output = T>, T> Future for LockedBody<'_, B, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Self { call, body } = self.get_mut();
        let error = match ready!(call.0.poll_body(body, cx)) {
            Ok(()) => return Poll::Ready(body.take_value()),
            Err(error) => error,
        };
        Poll::Ready((body.output.from_lock_error)(error))
    }
}

impl<B: Future<Output = T>, T> Drop for LockedBody<'_, B, T> {
    /// Drops the body of a cancelled call before its lock is released.
    fn drop(&mut self) {
        self.call.0.drop_body(&mut self.body);
    }
}

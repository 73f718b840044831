//! The future of a body under its lock. It is generic over the body: every annotated function compiles its own copy, so it
//! does only what depends on the body.

use std::any::Any;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{EndedHold, RunningHold, Step};
use crate::opaque::BoxedFuture;
use crate::output::Output;

pin_project! {
    /// A call from the first step of its body to the end of the release.
    pub(super) struct LockedBody<B, L>
    where
        B: Future,
    {
        // The body stands before the hold, so that a cancelled call drops it while the lock is still held.
        #[pin]
        body: Body<B, B::Output>,
        #[pin]
        waits_for: WaitsFor<L>,
        hold: RunningHold,
        output: Output<B::Output>,
    }

    impl<B, L> PinnedDrop for LockedBody<B, L>
    where
        B: Future,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if matches!(*this.body, Body::Running { .. }) {
                this.hold.drop_body(&mut || set(this.body.as_mut(), Body::Gone));
            }
        }
    }
}

pin_project! {
    #[project = BodyProjection]
    enum Body<B, T> {
        Running { #[pin] body: B },
        Ended { outcome: Option<Outcome<T>> },
        Gone,
    }
}

pin_project! {
    #[project = WaitsForProjection]
    enum WaitsFor<L> {
        Loss { #[pin] cancelled: L },
        Release { released: BoxedFuture<'static, EndedHold> },
    }
}

/// How a body has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEnd {
    Returned,
    Lost,
    Panicked,
}

impl BodyEnd {
    /// The value of the span's field `outcome`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Returned => "returned",
            Self::Lost => "lost",
            Self::Panicked => "panicked",
        }
    }
}

/// What the call returns.
enum Outcome<T> {
    Returned(T),
    Lost,
    /// The payload is in a mutex, which makes it `Sync`.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl<B: Future, L> LockedBody<B, L> {
    pub(super) fn new(body: B, hold: RunningHold, cancelled: L, output: Output<B::Output>) -> Self {
        Self {
            body: Body::Running { body },
            waits_for: WaitsFor::Loss { cancelled },
            hold,
            output,
        }
    }
}

impl<B, L> Future for LockedBody<B, L>
where
    B: Future,
    L: Future<Output = ()>,
{
    type Output = B::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let BodyProjection::Running { mut body } = this.body.as_mut().project() {
            let mut returned = None;
            let step = this
                .waits_for
                .as_mut()
                .step(this.hold, cx, &mut |cx| match body.as_mut().poll(cx) {
                    Poll::Ready(value) => {
                        returned = Some(value);
                        true
                    }
                    Poll::Pending => false,
                });
            let (end, outcome) = match (step, returned) {
                (Step::Pending, _) => return Poll::Pending,
                (_, Some(value)) => (BodyEnd::Returned, Outcome::Returned(value)),
                (Step::Panicked(payload), None) => {
                    (BodyEnd::Panicked, Outcome::Panicked(Mutex::new(payload)))
                }
                (Step::Lost | Step::Returned, None) => (BodyEnd::Lost, Outcome::Lost),
            };
            // The body with its captured values is dropped before the lock is released.
            this.hold.drop_body(&mut || set(this.body.as_mut(), Body::Gone));
            set(
                this.body.as_mut(),
                Body::Ended {
                    outcome: Some(outcome),
                },
            );
            this.waits_for.as_mut().begin_release(this.hold, end);
        }
        let ended = ready!(this.waits_for.poll_release(cx));
        let outcome = match this.body.project() {
            BodyProjection::Ended { outcome } => outcome.take(),
            _ => None,
        };
        let error = match (outcome, ended) {
            (Some(Outcome::Returned(value)), EndedHold { loss_of_success, .. }) => match loss_of_success {
                Some(error) if (this.output.is_success)(&value) => error,
                _ => return Poll::Ready(value),
            },
            (
                Some(Outcome::Lost),
                EndedHold {
                    lost: Some(error), ..
                },
            ) => error,
            (Some(Outcome::Panicked(payload)), _) => resume(payload),
            _ => unreachable!("polled after it was ready"),
        };
        Poll::Ready((this.output.from_lock_error)(error))
    }
}

// What follows is compiled once for all bodies, or once for each: `inline(never)` keeps the compiler from copying it to
// every place of use.

#[inline(never)]
fn set<B, T>(mut body: Pin<&mut Body<B, T>>, value: Body<B, T>) {
    body.set(value);
}

#[cold]
#[inline(never)]
fn resume(payload: Mutex<Box<dyn Any + Send>>) -> ! {
    resume_unwind(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl<L: Future<Output = ()>> WaitsFor<L> {
    #[inline(never)]
    fn step(
        self: Pin<&mut Self>,
        hold: &RunningHold,
        cx: &mut Context<'_>,
        poll_body: &mut dyn FnMut(&mut Context<'_>) -> bool,
    ) -> Step {
        let WaitsForProjection::Loss { cancelled } = self.project() else {
            unreachable!("the lock is released after the body");
        };
        hold.step(cx, cancelled, poll_body)
    }

    #[inline(never)]
    fn begin_release(mut self: Pin<&mut Self>, hold: &mut RunningHold, end: BodyEnd) {
        let released = hold.release(end.as_str(), end == BodyEnd::Lost);
        self.set(Self::Release { released });
    }

    #[inline(never)]
    fn poll_release(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<EndedHold> {
        let WaitsForProjection::Release { released } = self.project() else {
            unreachable!("the body runs until it ends");
        };
        released.as_mut().poll(cx)
    }
}

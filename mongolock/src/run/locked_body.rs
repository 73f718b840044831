//! The future of a body under its lock. It is generic over the body: every annotated function compiles its own copy, so it
//! does only what depends on the body.

use std::any::Any;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{EndedHold, LockSource, OnLost, RunningHold, Step};
use crate::output::Output;

pin_project! {
    /// A call from the first step of its body to the end of the release.
    pub(super) struct LockedBody<B, L, R>
    where
        B: Future,
    {
        // The body stands before the hold, so that a cancelled call drops it while the lock is still held.
        #[pin]
        body: Body<B, B::Output>,
        #[pin]
        waits_for: WaitsFor<L, R>,
        hold: RunningHold,
        release: fn(LockSource, OnLost, bool) -> R,
        output: Output<B::Output>,
    }

    impl<B, L, R> PinnedDrop for LockedBody<B, L, R>
    where
        B: Future,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if matches!(*this.body, Body::Running { .. }) {
                this.hold.drop_body(&mut || this.body.set(Body::Gone));
            }
        }
    }
}

pin_project! {
    #[project = BodyProjection]
    #[project_replace = BodyOwned]
    enum Body<B, T> {
        Running { #[pin] body: B },
        Ended { outcome: Outcome<T> },
        Gone,
    }
}

pin_project! {
    #[project = WaitsForProjection]
    enum WaitsFor<L, R> {
        Loss { #[pin] cancelled: L },
        Release { #[pin] released: R },
    }
}

enum Outcome<T> {
    Returned(T),
    Lost,
    /// The payload is in a mutex, which makes it `Sync`.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl<B: Future, L, R> LockedBody<B, L, R> {
    pub(super) fn new(
        body: B,
        hold: RunningHold,
        cancelled: L,
        release: fn(LockSource, OnLost, bool) -> R,
        output: Output<B::Output>,
    ) -> Self {
        Self {
            body: Body::Running { body },
            waits_for: WaitsFor::Loss { cancelled },
            hold,
            release,
            output,
        }
    }
}

impl<B, L, R> Future for LockedBody<B, L, R>
where
    B: Future,
    L: Future<Output = ()>,
    R: Future<Output = EndedHold>,
{
    type Output = B::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let BodyProjection::Running { mut body } = this.body.as_mut().project()
            && let WaitsForProjection::Loss { cancelled } = this.waits_for.as_mut().project()
        {
            let mut returned = None;
            let step = this
                .hold
                .step(cx, cancelled, &mut |cx| match body.as_mut().poll(cx) {
                    Poll::Ready(value) => {
                        returned = Some(value);
                        true
                    }
                    Poll::Pending => false,
                });
            let (name, outcome) = match (step, returned) {
                (Step::Panicked(payload), _) => ("panicked", Outcome::Panicked(Mutex::new(payload))),
                (Step::Returned, Some(value)) => ("returned", Outcome::Returned(value)),
                (Step::Lost, _) => ("lost", Outcome::Lost),
                (Step::Pending, _) => return Poll::Pending,
                (Step::Returned, None) => unreachable!("a body that has returned has a value"),
            };
            let was_cancelled = matches!(outcome, Outcome::Lost);
            // The body with its captured values is dropped before the lock is released.
            this.hold.drop_body(&mut || this.body.set(Body::Gone));
            this.body.set(Body::Ended { outcome });
            let (source, on_lost) = this.hold.ended(name);
            let released = (this.release)(source, on_lost, was_cancelled);
            this.waits_for.set(WaitsFor::Release { released });
        }
        let WaitsForProjection::Release { released } = this.waits_for.project() else {
            unreachable!("the body runs until it ends");
        };
        let ended = ready!(released.poll(cx));
        let BodyOwned::Ended { outcome } = this.body.project_replace(Body::Gone) else {
            unreachable!("polled after it was ready");
        };
        Poll::Ready(match (outcome, ended.lost, ended.loss_of_success) {
            (Outcome::Panicked(payload), ..) => {
                resume_unwind(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            (Outcome::Lost, Some(error), _) => (this.output.from_lock_error)(error),
            (Outcome::Returned(value), _, Some(error)) if (this.output.is_success)(&value) => {
                (this.output.from_lock_error)(error)
            }
            (Outcome::Returned(value), ..) => value,
            (Outcome::Lost, None, _) => unreachable!("a cancelled call has lost its lock"),
        })
    }
}

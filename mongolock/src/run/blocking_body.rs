//! A body that does not await, under its lock: the calling thread runs it, and another thread releases the lock.

use std::future::{Future, pending};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{AnyBody, EndedHold, Outcome, RunningHold, poll_outcome};
use crate::output::Output;

/// A body that takes its only step when it is polled, and then its value.
struct BlockingBody<F, T> {
    body: Option<F>,
    value: Option<T>,
    output: Output<T>,
}

/// The body of a call after its end, whose lock is not released yet.
pub(crate) struct EndedBody<T> {
    outcome: Outcome,
    value: Option<T>,
    output: Output<T>,
}

/// Runs a body that does not await, which a loss cannot cancel once it runs. The future releases the lock.
pub(crate) fn run_blocking<T>(
    hold: RunningHold,
    body: impl FnOnce() -> T,
    output: Output<T>,
) -> (EndedBody<T>, impl Future<Output = EndedHold> + Send + 'static) {
    let hold = hold.begin();
    let mut body = BlockingBody {
        body: Some(body),
        value: None,
        output,
    };
    let cx = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(outcome) = poll_outcome(&hold, cx, pin!(pending()), &mut body) else {
        unreachable!("the body ends in its only step")
    };
    let releasing = hold.release(outcome.body_end());
    let BlockingBody { value, output, .. } = body;
    let ended = EndedBody {
        outcome,
        value,
        output,
    };
    (ended, releasing)
}

impl<F: FnOnce() -> T, T> AnyBody for BlockingBody<F, T> {
    fn poll(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        let Some(body) = self.body.take() else {
            unreachable!("polled after it was ready")
        };
        let value = self.value.insert(body());
        Poll::Ready((self.output.is_success)(value))
    }

    fn drop_unfinished(&mut self) {
        self.body = None;
    }
}

impl<T> EndedBody<T> {
    /// What the call returns after the release.
    pub(crate) fn after(self, released: EndedHold) -> T {
        match (self.outcome.after(released), self.value) {
            (Err(error), _) => (self.output.from_lock_error)(error),
            (Ok(()), Some(value)) => value,
            (Ok(()), None) => unreachable!("the body has returned"),
        }
    }
}

//! A call under its lock, from the acquisition to the release: the common path of the attribute and of `run`.
//!
//! Nothing here depends on the type of the body, so that it is compiled once and not for each annotated function.
//! [`locked_body`] has the part that does depend on it.

mod hold;
mod locked_body;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

pub use hold::OnLost;
use hold::{BodyEnd, BodyPoll, EndedHold};
pub(crate) use hold::{RunningHold, inner_turns};
pub use locked_body::Body;
use locked_body::LockedBody;

use crate::opaque::boxed;
use crate::output::{self, Output};
use crate::{LockContext, LockError, LockOutput};

/// A body, as seen by the call, without its type.
trait AnyBody {
    /// Polls the body. When it has returned, it is dropped with its captured values; the result is whether it succeeded.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool>;

    /// Drops a body that has not returned.
    fn drop_unfinished(&mut self);
}

/// A call without its body. It is on the heap and behind a `dyn`: the future of an annotated function contains only a
/// pointer to it, and the compiler's proofs and layouts for nested calls end there.
trait LockedCall: Send + Sync {
    /// Acquires the lock, or joins the hold of the enclosing call.
    fn poll_acquired(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), LockError>>;

    /// Runs the body under the lock, and then releases the lock; an error replaces the value of the body.
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

/// The future that acquires the lock of a call.
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring(Option<Pin<Box<dyn LockedCall>>>);

/// The lock of a call: one that it has acquired itself, or that of the enclosing call.
pub struct Acquired(Pin<Box<dyn LockedCall>>);

impl Acquiring {
    /// A call that acquires its lock with this future.
    pub(crate) fn new(
        acquiring: impl Future<Output = Result<RunningHold, LockError>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Box::pin(StagedCall {
            stage: Stage::Acquiring { acquiring },
            outcome: None,
            stages: Stages {
                until_cancelled,
                release: RunningHold::release,
            },
        })))
    }
}

impl Future for Acquiring {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.0 else {
            unreachable!("polled after it was ready")
        };
        let acquired = ready!(call.as_mut().poll_acquired(cx));
        let Some(call) = self.0.take() else {
            unreachable!("it has just been polled")
        };
        Poll::Ready(acquired.map(|()| Acquired(call)))
    }
}

impl Acquired {
    /// The context of the lock, which the body gets as an argument.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.0.as_ref().context()
    }

    /// Runs the body under the lock, releases the lock, and determines what the call returns.
    pub fn run<B: Future>(
        self,
        body: Pin<&mut Body<B, B::Output>>,
        output: Output<B::Output>,
    ) -> LockedBody<'_, B, B::Output> {
        LockedBody::new(self, body, output)
    }
}

/// Runs the body that this function creates, under the lock that this future acquires.
pub(crate) async fn run<B: Future<Output: LockOutput>>(
    acquiring: Acquiring,
    body: impl FnOnce(LockContext) -> B,
) -> B::Output {
    match acquiring.await {
        Ok(acquired) => {
            let body = pin!(Body::new(body(acquired.context())));
            acquired.run(body, output::output()).await
        }
        Err(error) => LockOutput::from_lock_error(error),
    }
}

/// Waits until a body may be cancelled.
async fn until_cancelled(context: LockContext) {
    if context.has_several_leases() {
        // The rare case is on the heap, to keep other calls small.
        boxed(context.any_cancelled()).await;
    } else {
        context.lease().cancelled().await;
    }
}

pin_project! {
    /// A call that acquires its lock with the future `A`, waits with the future `C` until its body may be cancelled,
    /// and releases the lock with the future `R`.
    struct StagedCall<A, C, R> {
        #[pin]
        stage: Stage<A, C, R>,
        outcome: Option<Outcome>,
        stages: Stages<C, R>,
    }
}

/// The functions that start the later stages of a call.
struct Stages<C, R> {
    until_cancelled: fn(LockContext) -> C,
    release: fn(RunningHold, BodyEnd) -> R,
}

pin_project! {
    /// The stage of a call. The stages share their memory.
    #[project = StageProjection]
    #[project_ref = StageRef]
    enum Stage<A, C, R> {
        Acquiring { #[pin] acquiring: A },
        Running { hold: Option<RunningHold>, #[pin] cancelled: C },
        Releasing { #[pin] releasing: R },
        Ended,
    }
}

/// How the body has ended.
enum Outcome {
    Returned {
        is_success: bool,
    },
    Lost,
    /// The payload is in a mutex, which makes it `Sync`.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl Outcome {
    /// The same for the release, without the payload of a panic.
    fn body_end(&self) -> BodyEnd {
        match self {
            Self::Returned { is_success: true } => BodyEnd::Succeeded,
            Self::Returned { is_success: false } => BodyEnd::Failed,
            Self::Lost => BodyEnd::Lost,
            Self::Panicked(_) => BodyEnd::Panicked,
        }
    }

    /// What the call returns after the release: the value of the body, or an error.
    fn after(self, ended: EndedHold) -> Result<(), LockError> {
        let error = match self {
            Self::Returned { is_success: true } => ended.error_of_success,
            // The failure of the body comes before the loss of the lock.
            Self::Returned { is_success: false } => None,
            Self::Lost => ended.lost,
            Self::Panicked(payload) => {
                resume_unwind(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
        };
        error.map_or(Ok(()), Err)
    }
}

/// Polls the body under the lock. Returns how the body has ended.
fn poll_outcome(
    hold: &RunningHold,
    cx: &mut Context<'_>,
    cancelled: Pin<&mut impl Future<Output = ()>>,
    body: &mut dyn AnyBody,
) -> Poll<Outcome> {
    let outcome = match hold.step(cx, cancelled, body) {
        BodyPoll::Pending => return Poll::Pending,
        BodyPoll::Returned { is_success } => Outcome::Returned { is_success },
        BodyPoll::Lost => Outcome::Lost,
        BodyPoll::Panicked(payload) => Outcome::Panicked(Mutex::new(payload)),
    };
    // The body with its captured values is dropped before the lock is released.
    if !matches!(outcome, Outcome::Returned { .. }) {
        hold.drop_body(body);
    }
    Poll::Ready(outcome)
}

impl<A, C, R> LockedCall for StagedCall<A, C, R>
where
    A: Future<Output = Result<RunningHold, LockError>> + Send + Sync,
    C: Future<Output = ()> + Send + Sync,
    R: Future<Output = EndedHold> + Send + Sync,
{
    fn poll_acquired(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        let mut this = self.project();
        let StageProjection::Acquiring { acquiring } = this.stage.as_mut().project() else {
            unreachable!("the lock is acquired once")
        };
        let next = match ready!(acquiring.poll(cx)) {
            Ok(hold) => Stage::Running {
                cancelled: (this.stages.until_cancelled)(hold.context().clone()),
                hold: Some(hold.begin()),
            },
            Err(error) => {
                this.stage.set(Stage::Ended);
                return Poll::Ready(Err(error));
            }
        };
        this.stage.set(next);
        Poll::Ready(Ok(()))
    }

    fn poll_body(
        self: Pin<&mut Self>,
        body: &mut dyn AnyBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), LockError>> {
        let mut this = self.project();
        if let StageProjection::Running {
            hold: held,
            cancelled,
        } = this.stage.as_mut().project()
        {
            let Some(hold) = held else {
                unreachable!("the hold is taken once")
            };
            let outcome = ready!(poll_outcome(hold, cx, cancelled, body));
            let Some(hold) = held.take() else {
                unreachable!("it has just been there")
            };
            let releasing = (this.stages.release)(hold, outcome.body_end());
            *this.outcome = Some(outcome);
            this.stage.set(Stage::Releasing { releasing });
        }
        let StageProjection::Releasing { releasing } = this.stage.as_mut().project() else {
            unreachable!("polled before the lock was acquired, or after it was released")
        };
        let ended = ready!(releasing.poll(cx));
        this.stage.set(Stage::Ended);
        match this.outcome.take() {
            Some(outcome) => Poll::Ready(outcome.after(ended)),
            None => unreachable!("the body has ended before the release"),
        }
    }

    fn drop_body(self: Pin<&mut Self>, body: &mut dyn AnyBody) {
        if let StageProjection::Running { hold: Some(hold), .. } = self.project().stage.project() {
            hold.drop_body(body);
        }
    }

    fn context(self: Pin<&Self>) -> LockContext {
        match self.project_ref().stage.project_ref() {
            StageRef::Running { hold: Some(hold), .. } => hold.context().clone(),
            _ => unreachable!("the body has not begun"),
        }
    }
}

impl fmt::Debug for Acquiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}

impl fmt::Debug for Acquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquired").finish_non_exhaustive()
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

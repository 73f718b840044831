//! A call under its lock, from the acquisition to the release: the common path of the attribute and of `run`.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::futures::TaskLocalFuture;
use tracing::Span;

use crate::context::{CURRENT, LockContext};
use crate::lease::Lease;
use crate::output::Output;
use crate::{LockError, LockGuard, trace};

/// The lock of a call: one that it has acquired itself, or that of the enclosing call.
pub struct Acquired {
    context: LockContext,
    source: LockSource,
    on_lost: OnLost,
}

/// What happens to the body when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    Cancel,
    Continue,
}

enum LockSource {
    Own {
        guard: LockGuard,
        /// Whether the call waits until the server has confirmed the release.
        await_release: bool,
    },
    Joined(Joined),
}

/// A call within an enclosing hold of the same name.
struct Joined {
    context: LockContext,
    /// The permit of the enclosing hold, under which only one joined call runs at a time.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.context.end();
    }
}

impl Acquired {
    pub(crate) fn own(guard: LockGuard, await_release: bool, on_lost: OnLost) -> Self {
        Self {
            context: guard.context(),
            source: LockSource::Own { guard, await_release },
            on_lost,
        }
    }

    pub(crate) fn joined(outer: &LockContext, permit: OwnedSemaphorePermit, on_lost: OnLost) -> Self {
        let context = LockContext::new(Arc::clone(outer.lease()), outer.engine());
        let joined = Joined {
            context: context.clone(),
            _permit: permit,
        };
        Self {
            context,
            source: LockSource::Joined(joined),
            on_lost,
        }
    }

    pub(crate) fn context(&self) -> &LockContext {
        &self.context
    }

    /// Runs the body under the lock. The future contains the body and adds a constant to the body's size.
    pub fn run<B: Future>(self, body: B) -> LockedBody<B, impl Future<Output = ()>> {
        let lease = Arc::clone(self.context.lease());
        LockedBody {
            span: trace::hold_span(&lease.fields()),
            body: Some(CURRENT.scope(self.context, body)),
            cancelled: async move { lease.cancelled().await },
            source: Some(self.source),
            on_lost: self.on_lost,
        }
    }
}

impl LockSource {
    fn lease(&self) -> &Arc<Lease> {
        match self {
            Self::Own { guard, .. } => guard.lease(),
            Self::Joined(joined) => joined.context.lease(),
        }
    }

    /// Ends the call's part of the hold: work that has succeeded and may succeed only once is marked as done.
    async fn end(&mut self, has_succeeded: bool) -> Result<(), LockError> {
        match self {
            Self::Own { guard, .. } if has_succeeded && guard.lease().once.is_some() => {
                guard.complete().await
            }
            Self::Own { guard, await_release } => {
                if !*await_release && let Some(released) = guard.end_unawaited() {
                    return released;
                }
                guard.end().await
            }
            Self::Joined(joined) => joined.context.ensure_held(),
        }
    }
}

pin_project! {
    /// The body of a call while it runs under its lock.
    pub struct LockedBody<B, L> {
        // The body stands before the source of the lock, so that a cancelled call drops it while the lock is still
        // held.
        #[pin]
        body: Option<TaskLocalFuture<LockContext, B>>,
        #[pin]
        cancelled: L,
        source: Option<LockSource>,
        on_lost: OnLost,
        span: Span,
    }
}

impl<B: Future, L: Future<Output = ()>> Future for LockedBody<B, L> {
    type Output = Finished<B::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let _entered = this.span.enter();
        let cancel = *this.on_lost == OnLost::Cancel;
        let lost = this
            .source
            .as_ref()
            .is_none_or(|source| source.lease().should_cancel());
        // The lock is checked before the body goes on: after a pause of the process the body must not take another step
        // without the lock.
        let outcome = if cancel && lost {
            BodyOutcome::Lost
        } else {
            let Some(body) = this.body.as_mut().as_pin_mut() else {
                unreachable!("polled after it was ready");
            };
            match catch_unwind(AssertUnwindSafe(|| body.poll(cx))) {
                Ok(Poll::Ready(output)) => BodyOutcome::Returned(output),
                Err(payload) => BodyOutcome::Panicked(payload),
                Ok(Poll::Pending) if cancel && this.cancelled.poll(cx).is_ready() => BodyOutcome::Lost,
                Ok(Poll::Pending) => return Poll::Pending,
            }
        };
        // The body with its captured values is dropped before the lock is released.
        this.body.set(None);
        let Some(source) = this.source.take() else {
            unreachable!("the hold is taken once")
        };
        trace::hold_ended(this.span, &source.lease().fields(), outcome.name());
        Poll::Ready(Finished {
            outcome,
            source,
            on_lost: *this.on_lost,
        })
    }
}

/// A call whose body has ended, and whose lock is not released yet.
pub struct Finished<T> {
    outcome: BodyOutcome<T>,
    source: LockSource,
    on_lost: OnLost,
}

enum BodyOutcome<T> {
    Returned(T),
    Lost,
    Panicked(Box<dyn Any + Send>),
}

impl<T> BodyOutcome<T> {
    fn name(&self) -> &'static str {
        match self {
            Self::Returned(_) => "returned",
            Self::Lost => "lost",
            Self::Panicked(_) => "panicked",
        }
    }
}

impl<T> Finished<T> {
    /// Releases the lock and decides what the call returns: the failure of the body comes before the loss of the lock.
    pub async fn finish(mut self, output: Output<T>) -> T {
        let lost = self.source.lease().lost_error();
        // After a guarded commit the work was done under the lock, even if the lock was lost later.
        let reports_loss = self.on_lost == OnLost::Cancel && !self.source.lease().has_committed();
        let has_succeeded =
            matches!(&self.outcome, BodyOutcome::Returned(value) if (output.is_success)(value));
        let released = self.source.end(has_succeeded).await;
        match self.outcome {
            BodyOutcome::Panicked(payload) => resume_unwind(payload),
            BodyOutcome::Lost => (output.from_lock_error)(lost),
            BodyOutcome::Returned(value) => match released {
                Err(error @ LockError::Lost { .. }) if reports_loss && (output.is_success)(&value) => {
                    (output.from_lock_error)(error)
                }
                // A release that is not confirmed does not change the outcome: the work was done under the lock.
                _ => value,
            },
        }
    }
}

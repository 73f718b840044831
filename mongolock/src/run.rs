//! A call under its lock, from the acquisition to the release: the common path of the attribute and of `run`.

mod locked_body;

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use locked_body::LockedBody;

use crate::context::{CURRENT, LockContext};
use crate::lease::Lease;
use crate::opaque::{BoxedFuture, boxed};
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

    pub(crate) fn joined(
        outer: &LockContext,
        template: Option<&'static str>,
        permit: OwnedSemaphorePermit,
        on_lost: OnLost,
    ) -> Self {
        let context = LockContext::new(Arc::clone(outer.lease()), outer.engine(), template);
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

    /// The context of the lock, which the body gets as an argument.
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.context.clone()
    }

    /// Runs the body under the lock, releases the lock, and determines what the call returns. The future contains the
    /// body and adds a constant to the body's size.
    pub fn run<B: Future>(self, body: B, output: Output<B::Output>) -> impl Future<Output = B::Output> {
        let lease = Arc::clone(self.context.lease());
        let hold = RunningHold {
            span: trace::hold_span(&lease.fields(), self.context.template()),
            context: self.context,
            source: Some(self.source),
            on_lost: self.on_lost,
        };
        LockedBody::new(body, hold, until_cancelled(lease), output)
    }
}

/// Waits until a body may be cancelled. Unlike a block in `run`, it has one type for all bodies.
async fn until_cancelled(lease: Arc<Lease>) {
    lease.cancelled().await;
}

impl LockSource {
    fn lease(&self) -> &Arc<Lease> {
        match self {
            Self::Own { guard, .. } => guard.lease(),
            Self::Joined(joined) => joined.context.lease(),
        }
    }

    async fn release(&mut self) -> Result<(), LockError> {
        match self {
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

/// The hold of a call whose body runs. Nothing here depends on the type of the body, so that it is compiled once and not
/// for each annotated function.
struct RunningHold {
    context: LockContext,
    source: Option<LockSource>,
    on_lost: OnLost,
    span: Span,
}

/// How one step of a body has ended.
enum Step {
    Pending,
    Returned,
    Lost,
    Panicked(Box<dyn Any + Send>),
}

impl RunningHold {
    /// Lets the body take a step under the lock; `poll_body` returns whether the body has ended.
    fn step(
        &self,
        cx: &mut Context<'_>,
        cancelled: Pin<&mut dyn Future<Output = ()>>,
        poll_body: &mut dyn FnMut(&mut Context<'_>) -> bool,
    ) -> Step {
        let _entered = self.span.enter();
        let cancel = self.on_lost == OnLost::Cancel;
        // The lock is checked before the body goes on: after a pause of the process the body must not take another step
        // without the lock.
        if cancel && self.context.lease().should_cancel() {
            return Step::Lost;
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            CURRENT.sync_scope(self.context.clone(), || poll_body(cx))
        }));
        match polled {
            Ok(true) => Step::Returned,
            Err(payload) => Step::Panicked(payload),
            Ok(false) if cancel && cancelled.poll(cx).is_ready() => Step::Lost,
            Ok(false) => Step::Pending,
        }
    }

    /// Drops the body, whose values still see the context of the call.
    fn drop_body(&self, drop_body: &mut dyn FnMut()) {
        let _entered = self.span.enter();
        let mut is_dropped = false;
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            CURRENT.sync_scope(self.context.clone(), || {
                is_dropped = true;
                drop_body();
            });
        }));
        match dropped {
            Err(payload) if is_dropped => resume_unwind(payload),
            // The thread ends, and has no context any more.
            Err(_) => drop_body(),
            Ok(()) => {}
        }
    }

    /// Ends the span of the body, and begins to release the lock.
    fn release(&mut self, outcome: &'static str, was_cancelled: bool) -> BoxedFuture<'static, EndedHold> {
        let Some(source) = self.source.take() else {
            unreachable!("the lock is released once")
        };
        trace::hold_ended(&self.span, &source.lease().fields(), outcome);
        end(source, self.on_lost, was_cancelled)
    }
}

/// What the end of the hold means for the call.
struct EndedHold {
    /// The loss of the lock, for a call whose body was cancelled.
    lost: Option<LockError>,
    /// The loss of the lock that a successful call reports.
    loss_of_success: Option<LockError>,
}

/// Releases the lock after its body. The future is on the heap: the compiler's proofs and layouts for nested calls end here.
fn end(mut source: LockSource, on_lost: OnLost, was_cancelled: bool) -> BoxedFuture<'static, EndedHold> {
    // After a guarded commit the work was done under the lock, even if the lock was lost later.
    let reports_loss = on_lost == OnLost::Cancel && !source.lease().has_committed();
    boxed(async move {
        let loss_of_success = match source.release().await {
            Err(error @ LockError::Lost { .. }) if reports_loss => Some(error),
            // A release that is not confirmed does not change the outcome: the work was done under the lock.
            _ => None,
        };
        // The reason of a loss stays the same after the release.
        let lost = was_cancelled.then(|| source.lease().lost_error());
        EndedHold {
            lost,
            loss_of_success,
        }
    })
}

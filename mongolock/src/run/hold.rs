//! The hold of a call: its own or that of the enclosing call, from the first step of the body to the release.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use super::AnyBody;
use crate::context::{CURRENT, LockContext};
use crate::lease::Lease;
use crate::{LockError, LockGuard, trace};

/// The hold of a call whose body runs.
pub(crate) struct RunningHold {
    context: LockContext,
    source: LockSource,
    on_lost: OnLost,
    span: Span,
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

/// How one step of a body has ended.
pub(super) enum Step {
    Pending,
    Returned { is_success: bool },
    Lost,
    Panicked(Box<dyn Any + Send>),
}

/// What the end of the hold means for the call.
pub(crate) struct EndedHold {
    /// The loss of the lock, for a call whose body was cancelled.
    pub(super) lost: Option<LockError>,
    /// The loss of the lock that a successful call reports.
    pub(super) loss_of_success: Option<LockError>,
}

impl RunningHold {
    pub(crate) fn own(guard: LockGuard, await_release: bool, on_lost: OnLost) -> Self {
        Self {
            context: guard.context(),
            source: LockSource::Own { guard, await_release },
            on_lost,
            span: Span::none(),
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
            span: Span::none(),
        }
    }

    /// The hold with the span in which its body runs.
    pub(super) fn begin(self) -> Self {
        let span = trace::hold_span(&self.lease().fields(), self.context.template());
        Self { span, ..self }
    }

    pub(super) fn context(&self) -> &LockContext {
        &self.context
    }

    pub(super) fn lease(&self) -> &Arc<Lease> {
        self.context.lease()
    }

    /// Lets the body take a step under the lock.
    pub(super) fn step(
        &self,
        cx: &mut Context<'_>,
        cancelled: Pin<&mut impl Future<Output = ()>>,
        body: &mut dyn AnyBody,
    ) -> Step {
        let _entered = self.span.enter();
        let cancel = self.on_lost == OnLost::Cancel;
        // The lock is checked before the body goes on: after a pause of the process the body must not take another step
        // without the lock.
        if cancel && self.lease().should_cancel() {
            return Step::Lost;
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            CURRENT.sync_scope(self.context.clone(), || body.poll(cx))
        }));
        match polled {
            Ok(Poll::Ready(is_success)) => Step::Returned { is_success },
            Err(payload) => Step::Panicked(payload),
            Ok(Poll::Pending) if cancel && cancelled.poll(cx).is_ready() => Step::Lost,
            Ok(Poll::Pending) => Step::Pending,
        }
    }

    /// Drops the body, whose values still see the context of the call.
    pub(super) fn drop_body(&self, body: &mut dyn AnyBody) {
        let _entered = self.span.enter();
        let mut is_dropped = false;
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            CURRENT.sync_scope(self.context.clone(), || {
                is_dropped = true;
                body.drop_unfinished();
            });
        }));
        match dropped {
            Err(payload) if is_dropped => resume_unwind(payload),
            // The thread ends, and has no context any more.
            Err(_) => body.drop_unfinished(),
            Ok(()) => {}
        }
    }

    /// Ends the span of the body, and releases the lock.
    pub(super) async fn release(self, outcome: &'static str, was_cancelled: bool) -> EndedHold {
        let Self {
            context,
            mut source,
            on_lost,
            span,
        } = self;
        let lease = context.lease();
        trace::hold_ended(&span, &lease.fields(), outcome);
        drop(span);
        // After a guarded commit the work was done under the lock, even if the lock was lost later.
        let reports_loss = on_lost == OnLost::Cancel && !lease.has_committed();
        let loss_of_success = match source.release().await {
            Err(error @ LockError::Lost { .. }) if reports_loss => Some(error),
            // A release that is not confirmed does not change the outcome: the work was done under the lock.
            _ => None,
        };
        EndedHold {
            // The reason of a loss stays the same after the release.
            lost: was_cancelled.then(|| context.lease().lost_error()),
            loss_of_success,
        }
    }
}

impl LockSource {
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

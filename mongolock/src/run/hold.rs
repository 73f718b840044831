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
use crate::context::{CURRENT, LockContext, View};
use crate::lease::Lease;
use crate::name::RenderedName;
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
    Own(Own),
    Joined(Joined),
    /// The call has acquired some names of a set and has joined the others. It is on the heap to keep other calls small.
    Both(Box<(Own, Joined)>),
}

/// What a call has acquired itself.
struct Own {
    guard: LockGuard,
    /// Whether the call waits until the server has confirmed the release.
    await_release: bool,
}

/// A call within enclosing holds of its names.
struct Joined {
    context: LockContext,
    /// The inner-call slots of the enclosing holds, under each of which only one joined call runs at a time.
    _slots: InnerCallSlots,
}

enum InnerCallSlots {
    One { _slot: OwnedSemaphorePermit },
    Several { _slots: Vec<OwnedSemaphorePermit> },
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.context.close();
    }
}

/// How one step of a body has ended.
pub(super) enum BodyPoll {
    Pending,
    Returned { is_success: bool },
    Lost,
    Panicked(Box<dyn Any + Send>),
}

/// How a body has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    Succeeded,
    /// It has returned a failure.
    Failed,
    /// It was cancelled because of the loss of the lock.
    Lost,
    Panicked,
}

impl BodyEnd {
    /// The value of the span's field `outcome`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded | Self::Failed => "returned",
            Self::Lost => "lost",
            Self::Panicked => "panicked",
        }
    }
}

/// What the end of the hold means for the call.
pub(crate) struct EndedHold {
    /// The loss of the lock, for a call whose body was cancelled.
    pub(super) lost: Option<LockError>,
    /// The error that a call returns although its body has succeeded.
    pub(super) error_of_success: Option<LockError>,
}

impl RunningHold {
    pub(crate) fn own(guard: LockGuard, await_release: bool, on_lost: OnLost) -> Self {
        Self {
            context: guard.context(),
            source: LockSource::Own(Own { guard, await_release }),
            on_lost,
            span: Span::none(),
        }
    }

    /// A call that has joined the hold of this name.
    pub(crate) fn joined(
        outer: &LockContext,
        lease: &Arc<Lease>,
        name: &RenderedName,
        slot: OwnedSemaphorePermit,
        on_lost: OnLost,
    ) -> Self {
        let lease = Arc::clone(lease);
        let context = match lease.token_of(name.text()) {
            // The hold has other names as well.
            Some(token) if !lease.members().is_empty() => {
                let view = View {
                    tokens: vec![(Arc::clone(name.text()), token)],
                    first: 0,
                };
                LockContext::of_view(lease, Vec::new(), view, outer.engine(), name.template())
            }
            _ => LockContext::new(lease, outer.engine(), name.template()),
        };
        Self::with_slots(context, InnerCallSlots::One { _slot: slot }, on_lost)
    }

    /// A call that has joined the holds of all its names.
    pub(crate) fn joined_several(
        context: LockContext,
        slots: Vec<OwnedSemaphorePermit>,
        on_lost: OnLost,
    ) -> Self {
        Self::with_slots(context, InnerCallSlots::Several { _slots: slots }, on_lost)
    }

    /// A call that has joined the holds of some of its names, and has acquired the others.
    pub(crate) fn partly(
        guard: LockGuard,
        await_release: bool,
        context: LockContext,
        slots: Vec<OwnedSemaphorePermit>,
        on_lost: OnLost,
    ) -> Self {
        let joined = Joined {
            context: context.clone(),
            _slots: InnerCallSlots::Several { _slots: slots },
        };
        let own = Own { guard, await_release };
        Self {
            context,
            source: LockSource::Both(Box::new((own, joined))),
            on_lost,
            span: Span::none(),
        }
    }

    fn with_slots(context: LockContext, slots: InnerCallSlots, on_lost: OnLost) -> Self {
        let joined = Joined {
            context: context.clone(),
            _slots: slots,
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
        Self {
            span: self.context.hold_span(),
            ..self
        }
    }

    pub(super) fn context(&self) -> &LockContext {
        &self.context
    }

    /// Lets the body take a step under the lock.
    pub(super) fn step(
        &self,
        cx: &mut Context<'_>,
        cancelled: Pin<&mut impl Future<Output = ()>>,
        body: &mut dyn AnyBody,
    ) -> BodyPoll {
        let _entered = self.span.enter();
        let cancel = self.on_lost == OnLost::Cancel;
        // The lock is checked before the body goes on: after a pause of the process the body must not take another step
        // without the lock.
        if cancel && self.context.leases().any(|lease| lease.should_cancel()) {
            return BodyPoll::Lost;
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            CURRENT.sync_scope(self.context.clone(), || body.poll(cx))
        }));
        match polled {
            Ok(Poll::Ready(is_success)) => BodyPoll::Returned { is_success },
            Err(payload) => BodyPoll::Panicked(payload),
            Ok(Poll::Pending) if cancel && cancelled.poll(cx).is_ready() => BodyPoll::Lost,
            Ok(Poll::Pending) => BodyPoll::Pending,
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

    /// Ends the span of the body, and releases the lock, or marks it as done.
    pub(super) async fn release(self, end: BodyEnd) -> EndedHold {
        let Self {
            context,
            mut source,
            on_lost,
            span,
        } = self;
        trace::hold_ended(&span, &context.lease().fields(), end.as_str());
        drop(span);
        // After a guarded commit the work was done under the lock, even if the lock was lost later.
        let is_uncommitted = context.leases().any(|lease| !lease.has_committed());
        let reports_loss = on_lost == OnLost::Cancel && is_uncommitted;
        // After the release the call's own lease is over as well.
        let lost = context.leases().find(|lease| lease.is_over()).map(Arc::clone);
        let needs_mark = source.needs_mark(end);
        let error_of_success = match source.finish(end).await {
            // Without the mark the work runs again, whatever happened to the lock.
            Err(error) if needs_mark => Some(error),
            Err(error @ LockError::Lost { .. }) if reports_loss => Some(error),
            // A release that is not confirmed does not change the outcome: the work was done under the lock.
            _ => None,
        };
        EndedHold {
            // The reason of a loss stays the same after the release.
            lost: (end == BodyEnd::Lost).then(|| lost.as_ref().unwrap_or(context.lease()).lost_error()),
            error_of_success,
        }
    }
}

impl LockSource {
    /// Whether the call has succeeded only if its lock is marked as done.
    fn needs_mark(&self, end: BodyEnd) -> bool {
        matches!(self, Self::Own(own) if end == BodyEnd::Succeeded && own.guard.lease().once.is_some())
    }

    /// Ends the call's part of the hold: work that has succeeded and may succeed only once is marked as done.
    async fn finish(&mut self, end: BodyEnd) -> Result<(), LockError> {
        let needs_mark = self.needs_mark(end);
        let own = match self {
            Self::Own(own) if needs_mark => return own.guard.complete().await,
            Self::Own(own) => own,
            Self::Both(both) => &mut both.0,
            Self::Joined(joined) => return joined.context.ensure_held(),
        };
        if own.await_release {
            own.guard.release_by_ref().await?;
        } else {
            own.guard.release_unawaited()?;
        }
        self.ensure_joined_held()
    }

    /// Returns an error if a hold that the call has joined is over; its own hold may have been released.
    fn ensure_joined_held(&self) -> Result<(), LockError> {
        let Self::Both(both) = self else { return Ok(()) };
        let (own, joined) = &**both;
        let mut joined = joined
            .context
            .leases()
            .filter(|lease| !Arc::ptr_eq(lease, own.guard.lease()));
        joined.try_for_each(|lease| lease.ensure_held())
    }
}

//! The hold of a call: its own or that of the enclosing call, from the first poll of the body to the release.

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
use crate::engine::Lease;
use crate::name::RenderedName;
use crate::options::OnBusy;
use crate::{LockError, LockGuard, trace};

/// The hold of a call whose body runs.
pub(crate) struct RunningHold {
    context: LockContext,
    source: Source,
    on_lost: OnLost,
    span: Span,
}

/// What happens to a body when its lock is lost; for [`Leader::on_lost`](crate::Leader::on_lost).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// It is cancelled at its next await point.
    Cancel,
    /// It continues, although another holder may have the lock.
    Continue,
}

/// Where the hold comes from. A call of a set can have acquired some of its names and joined the others.
struct Source {
    own: Option<Own>,
    joined: Option<Box<Joined>>,
}

/// The hold that a call has acquired itself.
struct Own {
    guard: LockGuard,
    /// Whether the call waits until the server has confirmed the release.
    await_release: bool,
}

/// A call within enclosing holds of its names. It is on the heap to keep other calls small.
struct Joined {
    context: LockContext,
    /// The permits of the joined calls of the enclosing holds: under each hold only one joined call runs at a time.
    _turns: Vec<OwnedSemaphorePermit>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.context.close();
    }
}

/// The result of one poll of a body.
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

/// The consequences of the end of the hold for the call.
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
            source: Source {
                own: Some(Own { guard, await_release }),
                joined: None,
            },
            on_lost,
            span: Span::none(),
        }
    }

    /// A call that has joined holds of its names, and has acquired the others if there are any.
    pub(crate) fn joined(
        context: LockContext,
        own: Option<LockGuard>,
        await_release: bool,
        turns: Vec<OwnedSemaphorePermit>,
        on_lost: OnLost,
    ) -> Self {
        let joined = Joined {
            context: context.clone(),
            _turns: turns,
        };
        Self {
            context,
            source: Source {
                own: own.map(|guard| Own { guard, await_release }),
                joined: Some(Box::new(joined)),
            },
            on_lost,
            span: Span::none(),
        }
    }

    /// Joins the hold of the enclosing call. The hold is busy only while another inner call runs under it. The lock options
    /// of the inner call do not apply.
    pub(crate) async fn join(
        outer: &LockContext,
        lease: Arc<Lease>,
        name: &RenderedName,
        on_busy: OnBusy,
        on_lost: OnLost,
    ) -> Result<Self, LockError> {
        let joined = std::iter::once(&lease);
        let turns = inner_turns(std::slice::from_ref(outer), joined, on_busy).await?;
        let context = match lease.token_of(name.text()) {
            // The hold has more names.
            Some(token) if lease.keys().len() > 1 => {
                let view = View {
                    tokens: vec![(Arc::clone(name.text()), token)],
                    title: 0,
                };
                LockContext::of_view(lease, Vec::new(), view, outer.engine(), name.template())
            }
            _ => LockContext::new(lease, outer.engine(), name.template()),
        };
        Ok(Self::joined(context, None, true, turns, on_lost))
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

    /// Polls the body under the lock.
    pub(super) fn step(
        &self,
        cx: &mut Context<'_>,
        cancelled: Pin<&mut impl Future<Output = ()>>,
        body: &mut dyn AnyBody,
    ) -> BodyPoll {
        let _entered = self.span.enter();
        let cancel = self.on_lost == OnLost::Cancel;
        // The lock is checked before the body continues: after a pause of the process the body must not run another
        // step without the lock.
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

    /// Drops the body. The drops of its values still see the context of the call.
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
        // The check is made before the release, because after it the call's own lease is over, too.
        let lost = context.leases().find(|lease| lease.is_over()).map(Arc::clone);
        let needs_mark = source.needs_mark(end);
        let ended = source.finish(end).await;
        // The reason of a loss stays the same after the release.
        let lost = lost.as_ref().unwrap_or(context.lease());
        let error_of_success = match ended {
            // Without the mark the work runs again, whatever happened to the lock.
            Err(error) if needs_mark => Some(error),
            Err(error @ LockError::Lost { .. }) if reports_loss => Some(error),
            // A release that is not confirmed does not change the result: the work was done under the lock.
            _ => None,
        };
        EndedHold {
            lost: (end == BodyEnd::Lost).then(|| lost.lost_error()),
            error_of_success,
        }
    }
}

impl Source {
    /// Whether the call has succeeded only if its lock is marked as done.
    fn needs_mark(&self, end: BodyEnd) -> bool {
        let is_once = |own: &Own| own.guard.lease().is_once();
        end == BodyEnd::Succeeded && self.joined.is_none() && self.own.as_ref().is_some_and(is_once)
    }

    /// Ends the call's part of the hold: work that has succeeded and may succeed only once is marked as done. Returns an error
    /// if a hold that the call has joined is over.
    async fn finish(&mut self, end: BodyEnd) -> Result<(), LockError> {
        let needs_mark = self.needs_mark(end);
        match &mut self.own {
            Some(own) if needs_mark => own.guard.complete().await?,
            Some(own) if own.await_release => own.guard.release_by_ref().await?,
            Some(own) => own.guard.release_unawaited()?,
            None => {}
        }
        let Some(joined) = &self.joined else { return Ok(()) };
        // The call's own hold has been released.
        let own = self.own.as_ref().map(|own| own.guard.lease());
        let is_joined = |lease: &&Arc<Lease>| !own.is_some_and(|own| Arc::ptr_eq(own, lease));
        let mut leases = joined.context.leases().filter(is_joined);
        leases.try_for_each(|lease| lease.ensure_held())
    }
}

/// Waits for the permits of the joined calls of these leases: calls that join one hold run one at a time, whichever of
/// its names they need. Without waiting, a taken permit is an error.
pub(crate) async fn inner_turns(
    outer: &[LockContext],
    joined: impl Iterator<Item = &Arc<Lease>> + Clone,
    on_busy: OnBusy,
) -> Result<Vec<OwnedSemaphorePermit>, LockError> {
    let mut turns = Vec::with_capacity(outer.len());
    for outer in outer {
        let inner_calls = outer.inner_calls();
        let turn = match on_busy {
            OnBusy::TryOnce => inner_calls.try_acquire_owned().ok(),
            OnBusy::Wait => tokio::select! {
                biased;
                turn = inner_calls.acquire_owned() => turn.ok(),
                () = Lease::until_one_over(joined.clone()) => None,
            },
        };
        // A hold may have ended during the wait for another inner call.
        joined.clone().try_for_each(|lease| lease.ensure_held())?;
        turns.push(turn.ok_or_else(|| outer.busy_error())?);
    }
    Ok(turns)
}

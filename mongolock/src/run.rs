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

use crate::context::{CURRENT, LockContext, View};
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
    Own(Own),
    Joined(Joined),
    /// The call has acquired some names of a set and has joined the others. It is boxed to keep the futures of other calls
    /// small.
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
    /// The permits of the enclosing holds, under each of which only one joined call runs at a time.
    _permits: Permits,
}

enum Permits {
    One {
        _permit: OwnedSemaphorePermit,
    },
    /// They are boxed to keep the futures of other calls small.
    Several {
        _permits: Box<SeveralPermits>,
    },
}

struct SeveralPermits {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Permits {
    fn several(permits: Vec<OwnedSemaphorePermit>) -> Self {
        Self::Several {
            _permits: Box::new(SeveralPermits { _permits: permits }),
        }
    }
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
            source: LockSource::Own(Own { guard, await_release }),
            on_lost,
        }
    }

    /// A call that has joined the hold of this name.
    pub(crate) fn joined(
        outer: &LockContext,
        name: &Arc<str>,
        permit: OwnedSemaphorePermit,
        on_lost: OnLost,
    ) -> Self {
        let lease = Arc::clone(outer.lease_of(name));
        let context = match lease.token_of(name) {
            // The hold has other names as well.
            Some(token) if !lease.members().is_empty() => {
                let view = View {
                    tokens: vec![(Arc::clone(name), token)],
                    first: 0,
                };
                LockContext::of_view(lease, Vec::new(), view, outer.engine())
            }
            _ => LockContext::new(lease, outer.engine()),
        };
        Self::with_permits(context, Permits::One { _permit: permit }, on_lost)
    }

    /// A call that has joined the holds of all its names.
    pub(crate) fn joined_several(
        context: LockContext,
        permits: Vec<OwnedSemaphorePermit>,
        on_lost: OnLost,
    ) -> Self {
        Self::with_permits(context, Permits::several(permits), on_lost)
    }

    /// A call that has joined the holds of some of its names, and has acquired the others.
    pub(crate) fn partly(
        guard: LockGuard,
        await_release: bool,
        context: LockContext,
        permits: Vec<OwnedSemaphorePermit>,
        on_lost: OnLost,
    ) -> Self {
        let joined = Joined {
            context: context.clone(),
            _permits: Permits::several(permits),
        };
        let own = Own { guard, await_release };
        Self {
            context,
            source: LockSource::Both(Box::new((own, joined))),
            on_lost,
        }
    }

    fn with_permits(context: LockContext, permits: Permits, on_lost: OnLost) -> Self {
        let joined = Joined {
            context: context.clone(),
            _permits: permits,
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
        let context = self.context.clone();
        LockedBody {
            span: context.hold_span(),
            body: Some(CURRENT.scope(self.context, body)),
            // The rare case is on the heap, to keep the futures of other calls small.
            cancelled: async move {
                if context.has_several_leases() {
                    Box::pin(context.any_cancelled()).await;
                } else {
                    context.lease().cancelled().await;
                }
            },
            source: Some(self.source),
            on_lost: self.on_lost,
        }
    }
}

impl LockSource {
    /// The lease of the call; of several the one that it has acquired.
    fn lease(&self) -> &Arc<Lease> {
        match self {
            Self::Own(own) => own.guard.lease(),
            Self::Joined(joined) => joined.context.lease(),
            Self::Both(both) => both.0.guard.lease(),
        }
    }

    /// What the call has joined.
    fn joined(&self) -> Option<&Joined> {
        match self {
            Self::Own(_) => None,
            Self::Joined(joined) => Some(joined),
            Self::Both(both) => Some(&both.1),
        }
    }

    /// Whether this is so for one of the leases that the call depends on.
    fn any_lease(&self, is_so: impl Fn(&Arc<Lease>) -> bool) -> bool {
        is_so(self.lease())
            || self
                .joined()
                .is_some_and(|joined| joined.context.leases().any(is_so))
    }

    /// The error for the loss of one of the leases.
    fn lost_error(&self) -> LockError {
        let mut joined = self
            .joined()
            .into_iter()
            .flat_map(|joined| joined.context.leases());
        let lost = joined.find(|lease| lease.is_over());
        lost.unwrap_or_else(|| self.lease()).lost_error()
    }

    async fn release(&mut self) -> Result<(), LockError> {
        let own = match self {
            Self::Own(own) => own,
            Self::Both(both) => &mut both.0,
            Self::Joined(joined) => return joined.context.ensure_held(),
        };
        if !own.await_release
            && let Some(released) = own.guard.end_unawaited()
        {
            return released.and_then(|()| self.ensure_joined_held());
        }
        own.guard.end().await?;
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
            .is_none_or(|source| source.any_lease(|lease| lease.should_cancel()));
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
        let lost = self.source.lost_error();
        // After a guarded commit the work was done under the lock, even if the lock was lost later.
        let reports_loss =
            self.on_lost == OnLost::Cancel && self.source.any_lease(|lease| !lease.has_committed());
        let released = self.source.release().await;
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

//! A call without its body, whose type is not part of it: from the first poll of the body to the release.

use std::any::Any;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use crate::context::{CURRENT, LockContext};
use crate::engine::{Hold, Lease};
use crate::guard::{self, CallContext};
use crate::options::OnLost;
use crate::{LockError, trace};

/// A step of a call, on the heap and behind a `dyn`. Its error is on the heap, too: each annotated function moves it several times.
type BoxedStep<T> = Pin<Box<dyn Future<Output = Result<T, Box<LockError>>> + Send + Sync>>;

/// A call that has its lock, without its body.
pub(super) trait LockedCall: Send + Sync {
    /// Runs the body under the lock, and then releases the lock; an error is what the call returns instead of the value
    /// of the body.
    fn poll_body(&mut self, body: &mut dyn AnyBody, cx: &mut Context<'_>)
    -> Poll<Result<(), Box<LockError>>>;

    /// Drops the body of a call that is cancelled, under its lock.
    fn drop_body(&mut self, body: &mut dyn AnyBody);

    /// The context of the lock.
    fn context(&self) -> LockContext;
}

// The future of an annotated function contains only a pointer to a value on the heap, behind a `dyn`: the compiler's proofs and
// layouts for nested calls end there.

/// The future of the lock of a call.
pub type Acquiring = BoxedStep<Acquired>;

/// The lock of a call: one that it has acquired itself, or that of the enclosing call.
pub struct Acquired(pub(super) Box<dyn LockedCall>);

impl Acquired {
    /// The lock under this context: what the call has acquired itself, and the inner turns of the holds that it has joined.
    pub(crate) fn new(
        context: LockContext,
        own: Option<Hold>,
        turns: Vec<OwnedSemaphorePermit>,
        on_lost: OnLost,
    ) -> Self {
        Self(Box::new(CallStage::Running(RunningHold {
            span: context.hold_span(),
            context: guard::of_call(context),
            own,
            turns,
            on_lost,
        })))
    }

    /// The context of the lock.
    pub fn context(&self) -> LockContext {
        self.0.context()
    }
}

/// How far a call with its lock has come.
enum CallStage {
    Running(RunningHold),
    Releasing(BoxedStep<()>),
    Ended,
}

impl LockedCall for CallStage {
    fn poll_body(
        &mut self,
        body: &mut dyn AnyBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Box<LockError>>> {
        if let Self::Running(hold) = self {
            let end = ready!(hold.poll_body(cx, body));
            if let Self::Running(hold) = mem::replace(self, Self::Ended) {
                *self = Self::Releasing(Box::pin(async { Ok(hold.release(end).await?) }));
            }
        }
        let Self::Releasing(releasing) = self else {
            unreachable!("polled after it was ready")
        };
        let ended = ready!(releasing.as_mut().poll(cx));
        *self = Self::Ended;
        Poll::Ready(ended)
    }

    fn drop_body(&mut self, body: &mut dyn AnyBody) {
        if let Self::Running(hold) = self {
            hold.drop_body(body);
        }
    }

    fn context(&self) -> LockContext {
        match self {
            Self::Running(hold) => LockContext::clone(&hold.context),
            _ => unreachable!("the body has not begun"),
        }
    }
}

/// A body as the call sees it.
pub(super) trait AnyBody {
    /// Polls the body. When it has returned, it is dropped with its captured values; the result is whether it succeeded.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool>;

    /// Drops a body that has not returned.
    fn drop_unfinished(&mut self);
}

/// The hold of a call whose body runs. A call of a set can have acquired some of its names and joined the others.
struct RunningHold {
    context: CallContext,
    /// What the call has acquired itself.
    own: Option<Hold>,
    /// If the call has joined enclosing holds: their inner turns, under each of which only one joined call runs at a time.
    turns: Vec<OwnedSemaphorePermit>,
    on_lost: OnLost,
    span: Span,
}

/// How a body has ended.
pub(super) enum BodyEnd {
    Returned {
        is_success: bool,
    },
    /// It was cancelled because of the loss of the lock.
    Lost,
    /// The payload is in a mutex, which makes it `Sync`.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl BodyEnd {
    /// The value of the span's field `outcome`.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Returned { .. } => "returned",
            Self::Lost => "lost",
            Self::Panicked(_) => "panicked",
        }
    }
}

impl RunningHold {
    /// Lets the body take a step under the lock. The body with its captured values is dropped before the lock is released.
    pub(super) fn poll_body(&self, cx: &mut Context<'_>, body: &mut dyn AnyBody) -> Poll<BodyEnd> {
        let end = self.step(cx, body);
        if matches!(end, Poll::Ready(BodyEnd::Lost | BodyEnd::Panicked(_))) {
            self.drop_body(body);
        }
        end
    }

    fn step(&self, cx: &mut Context<'_>, body: &mut dyn AnyBody) -> Poll<BodyEnd> {
        let _entered = self.span.enter();
        let cancel = self.on_lost == OnLost::Cancel;
        // The lock is checked before the body continues: after a pause of the process the body must not run another
        // step without the lock.
        if cancel && self.context.leases().any(|lease| lease.should_cancel()) {
            return Poll::Ready(BodyEnd::Lost);
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            CURRENT.sync_scope(self.context.clone(), || body.poll(cx))
        }));
        match polled {
            Ok(Poll::Pending) if cancel => {
                Lease::poll_cancelled(self.context.leases(), cx).map(|()| BodyEnd::Lost)
            }
            Ok(polled) => polled.map(|is_success| BodyEnd::Returned { is_success }),
            Err(payload) => Poll::Ready(BodyEnd::Panicked(Mutex::new(payload))),
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

    /// Ends the span of the body, and releases the lock, or marks it as done. An error is what the call returns instead of the value of
    /// the body.
    ///
    /// # Panics
    ///
    /// If the body has panicked.
    pub(super) async fn release(mut self, end: BodyEnd) -> Result<(), LockError> {
        let lease = self.context.lease();
        trace::hold_ended(&self.span, &lease.fields(lease.about.title), end.as_str());
        self.span = Span::none();
        // After a guarded commit the work was done under the lock, even if the lock was lost later.
        let is_uncommitted = self.context.leases().any(|lease| !lease.has_committed());
        let reports_loss = self.on_lost == OnLost::Cancel && is_uncommitted;
        // After the release the call's own lease is over as well.
        let is_over = |lease: &&Arc<Lease>| lease.is_over();
        let lost = self.context.leases().find(is_over).map(Arc::clone);
        // Whether the call has succeeded only if its lock is marked as done.
        let is_success = matches!(end, BodyEnd::Returned { is_success: true });
        let is_once = |own: &Hold| own.lease().about.options.once.is_some();
        let needs_mark = is_success && self.turns.is_empty() && self.own.as_ref().is_some_and(is_once);
        let ended = self.finish(needs_mark).await;
        match (end, ended) {
            (BodyEnd::Panicked(payload), _) => {
                resume_unwind(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            // The reason of a loss stays the same after the release.
            (BodyEnd::Lost, _) => Err(lost.as_ref().unwrap_or(self.context.lease()).lost_error()),
            // Without the mark the work runs again, whatever happened to the lock.
            (_, Err(error)) if needs_mark => Err(error),
            (_, Err(error @ LockError::Lost { .. })) if is_success && reports_loss => Err(error),
            // The failure of the body comes before the loss of the lock, and a release that is not confirmed does not change the
            // outcome: the work was done under the lock.
            _ => Ok(()),
        }
    }

    /// Ends the call's part of the hold. Returns an error if a hold that the call has joined is over.
    async fn finish(&mut self, needs_mark: bool) -> Result<(), LockError> {
        match &mut self.own {
            Some(own) if needs_mark => own.mark().await?,
            Some(own) if own.lease().about.options.await_release => own.release().await?,
            Some(own) => own.release_unawaited()?,
            None => {}
        }
        if self.turns.is_empty() {
            return Ok(());
        }
        // The call's own hold has been released.
        let own = self.own.as_ref().map(Hold::lease);
        let is_joined = |lease: &&Arc<Lease>| !own.is_some_and(|own| Arc::ptr_eq(own, lease));
        let mut leases = self.context.leases().filter(is_joined);
        leases.try_for_each(|lease| lease.ensure_held())
    }
}

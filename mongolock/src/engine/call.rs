//! A call that waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tracing::Span;

use super::clock::duration;
use super::hold::Hold;
use super::lease::{About, Lease};
use super::shared::Engine;
use super::words;
use crate::core::{Ending, Event, Join, Once, Rules, Time, Waiter, Wanted};
use crate::error::meaning::Meaning;
use crate::few::Few;
use crate::meter::{AcquireOutcome, Measure};
use crate::name::RenderedName;
use crate::once;
use crate::options::{OnBusy, Options};
use crate::store::millis;
use crate::{LeaseHandle, LockError, permit_id, trace};

/// The result of a call: a hold, or the error for a lock that has another holder.
pub(crate) type Tried = Result<Hold, LockError>;

/// The locks that a call asks for, and its options.
pub(crate) struct Wish<'a> {
    /// The names of its locks, in their order; for permits the name of the semaphore.
    pub(crate) names: &'a [RenderedName],
    /// The index of the name that represents a set.
    pub(crate) title: usize,
    /// The number of permits of a semaphore.
    pub(crate) permits: Option<u32>,
    pub(crate) options: &'a Arc<Options>,
    pub(crate) is_inside_hold: bool,
    pub(crate) on_busy: OnBusy,
}

/// A call that has begun. If it is dropped, it leaves its queue, and a hold that it was given meanwhile ends.
pub(crate) struct Call {
    engine: Arc<Engine>,
    lease: Arc<Lease>,
    span: Span,
    begun: Time,
    state: State,
    is_try: bool,
    on_busy: OnBusy,
}

enum State {
    Waits(Option<Waiter>),
    Ended(AcquireOutcome),
}

impl Wish<'_> {
    /// Begins the call: a task that polls it gets the hold, or the error for a lock that is busy.
    pub(crate) fn begin(&self, engine: &Arc<Engine>) -> Result<Call, LockError> {
        let text = |name: &RenderedName| Arc::clone(name.text());
        let name = &self.names[self.title];
        let span = trace::acquire_span(name.text(), name.template(), self.names, &engine.owner);
        let wanted = match (self.permits, self.names) {
            (Some(permits), _) => Wanted::Permit(permit_id::group(name.text()), permits),
            (None, [_, _, ..]) => Wanted::All(self.names.iter().map(text).collect()),
            (None, _) => Wanted::Lock(text(name)),
        };
        let about = About {
            names: Few::collected(self.names.iter().map(text)),
            title: self.title,
            template: name.template(),
            options: Arc::clone(self.options),
            resumes: None,
            span: Span::current(),
            meter: engine.meter.of(name.template()),
        };
        Call::begin(engine, about, wanted, span, self.is_inside_hold, self.on_busy)
    }
}

impl Call {
    /// Begins to resume the lease of this handle.
    pub(crate) fn resumption(
        engine: &Arc<Engine>,
        options: Arc<Options>,
        is_inside_hold: bool,
        handle: &LeaseHandle,
    ) -> Result<Self, LockError> {
        let lease = |name: &Arc<str>| (Arc::clone(name), Arc::clone(handle.lock_id()));
        let leases = handle.ids().iter().map(lease).collect();
        let wanted = Wanted::Leases(leases, millis(handle.ttl()));
        let about = About {
            names: Few::collected(handle.ids().iter().cloned()),
            title: handle.title(),
            template: None,
            options,
            resumes: Some(handle.fencing_token()),
            span: Span::current(),
            meter: engine.meter.of(None),
        };
        let span = trace::acquire_span(handle.name(), None, &[], handle.owner());
        Self::begin(engine, about, wanted, span, is_inside_hold, OnBusy::TryOnce)
    }

    fn begin(
        engine: &Arc<Engine>,
        about: About,
        wanted: Wanted,
        span: Span,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Result<Self, LockError> {
        if engine.is_forked() {
            return Err(Meaning::Forked.error());
        }
        let limit = about.options.wait_limit();
        let is_try = on_busy == OnBusy::TryOnce || limit == Some(Duration::ZERO);
        let mut call = Self {
            engine: Arc::clone(engine),
            lease: Lease::new(about),
            span,
            begun: engine.now(),
            state: State::Waits(None),
            is_try,
            on_busy,
        };
        engine.waiting.fetch_add(1, Ordering::Relaxed);
        call.lease.meter().record(Measure::WaitBegins);
        let joined = call.span.in_scope(|| call.join(wanted, is_inside_hold));
        match &joined {
            Ok(waiter) => call.state = State::Waits(*waiter),
            Err(error) => call.end(Err(error)),
        }
        joined.map(|_| call)
    }

    fn join(&self, wanted: Wanted, is_inside_hold: bool) -> Result<Option<Waiter>, LockError> {
        let (engine, options) = (&self.engine, self.lease.options());
        if engine.refuses(is_inside_hold) {
            return Err(LockError::shut_down(self.lease.name()));
        }
        engine.store.check()?;
        engine.index_task.ensure_running();
        engine.lend_runtime();
        let limit = if self.is_try {
            Some(options.attempt_limit())
        } else {
            options.wait_limit()
        };
        let micros = |limit: Duration| i64::try_from(limit.as_micros()).unwrap_or(i64::MAX / 2);
        let join = Join {
            rules: rules(options),
            limit: limit.map(micros),
            is_try: self.is_try,
            is_inside_hold,
            cell: Arc::clone(&self.lease),
        };
        Ok(engine.take(Event::Join(wanted, join)))
    }

    fn poll_outcome(&self, cx: &Context<'_>) -> Poll<Result<Tried, LockError>> {
        Poll::Ready(match ready!(self.lease.poll_call(cx)) {
            Ok(()) => {
                self.lease.report(trace::acquired);
                Ok(Ok(Hold::new(Arc::clone(&self.lease), Arc::clone(&self.engine))))
            }
            Err(failure) => {
                let (engine, waited) = (&self.engine, self.waited());
                words::failed(engine, &self.lease, &failure, waited, self.is_try, self.on_busy).map(Err)
            }
        })
    }

    fn waited(&self) -> Duration {
        duration(self.engine.now() - self.begun)
    }

    /// Records how the call has ended, also on its span.
    fn end(&mut self, outcome: Result<&Tried, &LockError>) {
        let ended = match outcome {
            Ok(Ok(_)) => AcquireOutcome::Acquired,
            Ok(Err(_)) => AcquireOutcome::Busy,
            Err(LockError::Timeout { .. }) => AcquireOutcome::Timeout,
            Err(LockError::Done { .. }) => AcquireOutcome::Done,
            Err(LockError::ShutDown { .. }) => AcquireOutcome::ShutDown,
            Err(error) if error.meaning() == Meaning::Overloaded => AcquireOutcome::Overloaded,
            Err(_) => AcquireOutcome::Error,
        };
        self.state = State::Ended(ended);
        if !self.span.is_disabled() {
            let token = |tried: &Tried| tried.as_ref().ok()?.lease().token().if_any();
            trace::acquire_ended(&self.span, self.waited(), ended, outcome.map(token));
        }
    }

    /// The caller was dropped.
    fn leave(&self, waiter: Option<Waiter>) {
        if self.engine.is_forked() {
            return;
        }
        // The core locks the mutex of the lease while it holds its own, so this mutex must not be held then.
        let event = match self.lease.leave() {
            Ok(()) => waiter.map(Event::Leave),
            Err(hold) => hold.map(|hold| Event::End(hold, Ending::Untaken, None)),
        };
        if let Some(event) = event {
            self.engine.take(event);
        }
    }
}

impl Future for Call {
    type Output = Result<Tried, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.span.in_scope(|| self.poll_outcome(cx)));
        self.end(outcome.as_ref());
        Poll::Ready(outcome)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let outcome = match self.state {
            State::Ended(outcome) => outcome,
            State::Waits(waiter) => {
                self.span.in_scope(|| self.leave(waiter));
                AcquireOutcome::Cancelled
            }
        };
        self.engine.waiting.fetch_sub(1, Ordering::Relaxed);
        self.lease
            .meter()
            .record(Measure::WaitEnds(outcome, self.waited()));
    }
}

/// The options in the form of the core.
fn rules(options: &Options) -> Rules {
    Rules {
        expiry: millis(options.expiry),
        renew_every: millis(options.renew_interval()).max(1),
        max_hold: options.max_hold.map(millis),
        min_hold: millis(options.min_hold),
        once: options.once.map(|once| match once {
            once::Once::PerPeriod(period) => Once::PerPeriod(millis(period)),
            once::Once::Kept(retention) => Once::Kept(millis(retention)),
        }),
    }
}

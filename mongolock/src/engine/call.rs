//! A call that waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tracing::Span;

use super::clock::duration;
use super::hold::Hold;
use super::state::{About, Engine, Event, Lease};
use super::words;
use crate::core::{Join, Key, OncePolicy, Rules, Time, Wanted};
use crate::error::meaning::Meaning;
use crate::meter::{AcquireOutcome, Measure};
use crate::options::{Once, Options};
use crate::store::millis;
use crate::{LockError, trace};

/// A call that has begun. If it is dropped, it leaves its queue, and a hold that it was given meanwhile ends.
pub(crate) struct AcquireCall {
    lease: Arc<Lease>,
    span: Span,
    begun: Time,
    waiter: Option<Key>,
    /// [`AcquireOutcome::Cancelled`] until it has ended.
    outcome: AcquireOutcome,
}

impl AcquireCall {
    /// Begins a call: a task that polls it gets the hold, or the error for a lock that is busy. The owner is that in the documents of
    /// the locks.
    pub(crate) fn begin(
        engine: &Arc<Engine>,
        about: About,
        wanted: Wanted,
        owner: &str,
    ) -> Result<Self, LockError> {
        if engine.is_forked() {
            return Err(Meaning::Forked.error());
        }
        let mut call = Self {
            span: trace::acquire_span(&about.names, about.title, about.template, owner),
            lease: Lease::new(engine, about),
            begun: engine.now(),
            waiter: None,
            outcome: AcquireOutcome::Cancelled,
        };
        engine.waiting.fetch_add(1, Ordering::Relaxed);
        call.lease.meter.record(Measure::WaitBegins);
        let joined = call.span.in_scope(|| call.join(wanted));
        call.waiter = joined.inspect_err(|error| call.end(Err(error)))?;
        Ok(call)
    }

    fn join(&self, wanted: Wanted) -> Result<Option<Key>, LockError> {
        let (engine, about) = (&self.lease.engine, &self.lease.about);
        let options = &about.options;
        if engine.refuses(about.is_inside_hold) {
            return Err(LockError::shut_down(self.lease.name()));
        }
        engine.store.check()?;
        engine.keep_index();
        engine.lend_runtime();
        let (is_try, limit) = options.limit(about.on_busy);
        let micros = |limit: Duration| i64::try_from(limit.as_micros()).unwrap_or(i64::MAX / 2);
        let join = Join {
            rules: rules(options),
            limit: limit.map(micros),
            is_try,
            is_inside_hold: about.is_inside_hold,
            cell: Arc::clone(&self.lease),
        };
        Ok(engine.take(Event::Join(wanted, join)))
    }

    fn poll_outcome(&self, cx: &Context<'_>) -> Poll<Result<Hold, LockError>> {
        Poll::Ready(match ready!(self.lease.poll_call(cx)) {
            Ok(()) => {
                self.lease.report(trace::acquired);
                Ok(Hold::new(Arc::clone(&self.lease)))
            }
            Err(failure) => Err(words::failed(&self.lease, &failure, self.waited())),
        })
    }

    fn waited(&self) -> Duration {
        duration(self.lease.engine.now() - self.begun)
    }

    /// Records how the call has ended, also on its span.
    fn end(&mut self, outcome: Result<&Hold, &LockError>) {
        self.outcome = match outcome {
            Ok(_) => AcquireOutcome::Acquired,
            Err(LockError::Busy { .. }) => AcquireOutcome::Busy,
            Err(LockError::Timeout { .. }) => AcquireOutcome::Timeout,
            Err(LockError::Done { .. }) => AcquireOutcome::Done,
            Err(LockError::ShutDown { .. }) => AcquireOutcome::ShutDown,
            Err(error) if error.meaning() == Meaning::Overloaded => AcquireOutcome::Overloaded,
            Err(_) => AcquireOutcome::Error,
        };
        if !self.span.is_disabled() {
            let token = |hold: &Hold| hold.lease().token().if_any();
            trace::acquire_ended(&self.span, self.waited(), self.outcome, outcome.map(token));
        }
    }
}

impl Future for AcquireCall {
    type Output = Result<Hold, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.span.in_scope(|| self.poll_outcome(cx)));
        self.end(outcome.as_ref());
        Poll::Ready(outcome)
    }
}

impl Drop for AcquireCall {
    fn drop(&mut self) {
        let engine = &self.lease.engine;
        if self.outcome == AcquireOutcome::Cancelled && !engine.is_forked() {
            // The caller was dropped.
            let _entered = self.span.enter();
            if let Some(event) = self.lease.leave(self.waiter) {
                engine.take(event);
            }
        }
        engine.waiting.fetch_sub(1, Ordering::Relaxed);
        let ends = Measure::WaitEnds(self.outcome, self.waited());
        self.lease.meter.record(ends);
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
            Once::PerPeriod(period) => OncePolicy::PerPeriod(millis(period)),
            Once::Kept(retention) => OncePolicy::Kept(millis(retention)),
        }),
    }
}

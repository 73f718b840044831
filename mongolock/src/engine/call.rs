//! A call that waits, and its error.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mongodb::bson::DateTime;
use tracing::Span;

use super::clock::duration;
use super::faults::{error_of, is_out_of_time};
use super::hold::Hold;
use super::state::{About, Engine, Event, Lease};
use crate::core::limits::SLOW;
use crate::core::{self, CallFailure, Cause, Join, Key, MS, OncePolicy, Rules, Seen, Time, Wanted};
use crate::error::meaning::Meaning;
use crate::meter::{AcquireOutcome, Measure};
use crate::options::{OnBusy, Once, Options};
use crate::protocol::Id;
use crate::store::millis;
use crate::{Busy, FencingToken, LockError, LossReason, lock_id, permit_id, trace};

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
            limit: limit.map(micros),
            is_try,
            is_inside_hold: about.is_inside_hold,
            cell: Arc::clone(&self.lease),
        };
        Ok(engine.take(Event::Join(wanted, rules(options), join)))
    }

    fn poll_outcome(&self, cx: &Context<'_>) -> Poll<Result<Hold, LockError>> {
        Poll::Ready(match ready!(self.lease.poll_call(cx)) {
            Ok(()) => {
                self.lease.report(trace::acquired);
                Ok(Hold::new(Arc::clone(&self.lease)))
            }
            Err(failure) => Err(failed(&self.lease, &failure, self.waited())),
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

/// Why a call has not got what it wanted: of a try `Busy` if another holder has the lock.
fn failed(lease: &Lease, failure: &CallFailure, waited: Duration) -> LockError {
    let engine = &lease.engine;
    let resumed = lease.about.resumes.unwrap_or(FencingToken::NONE);
    let title = lease.name();
    let name = failure.name.as_deref().map_or(title, permit_id::shown);
    let seen = failure.seen.as_ref();
    let own = failure.name.as_deref().and_then(|name| engine.holder_of(name));
    let fault = failure.fault.as_ref();
    let fault = fault.filter(|(_, fault)| seen.is_none() || !is_out_of_time(fault));
    let is_newer = |age: &core::Span| fault.is_none_or(|(fault, _)| age <= fault);
    let error = fault.map(|(_, fault)| error_of(fault));
    let error = error.filter(|error| error.meaning() != Meaning::NoReply);
    let busy = || busy(engine, name, own.as_deref(), seen);
    let timeout = || LockError::timeout(busy(), waited);
    let held = || match lease.about.on_busy {
        OnBusy::Wait => timeout(),
        OnBusy::TryOnce => LockError::busy(busy()),
    };
    let cause = match failure.cause {
        // A resumption depends only on its own lease, and no reply has shown the state of that lease.
        Cause::Busy | Cause::Timeout if lease.about.resumes.is_some() => Cause::Unanswered,
        cause => cause,
    };
    match cause {
        Cause::Done => done(name, seen),
        Cause::PeriodOver => timeout(),
        Cause::Busy => held(),
        Cause::Timeout if own.is_some() || seen.is_some_and(|(age, _)| is_newer(age)) => held(),
        Cause::Timeout if fault.is_none() && failure.silent_for < SLOW => timeout(),
        Cause::Timeout | Cause::Refused | Cause::Unanswered => {
            error.unwrap_or_else(|| engine.store.unanswered("acquire request", waited))
        }
        Cause::Gone => LockError::lost(title, resumed, LossReason::Gone),
        Cause::Expired => LockError::lost(title, resumed, LossReason::Expired),
        Cause::ShutDown => LockError::shut_down(title),
    }
}

/// The data of a held lock for its caller.
fn busy(engine: &Engine, name: &str, own: Option<&Lease>, seen: Option<&(core::Span, Seen)>) -> Busy {
    if let Some(own) = own {
        return own.busy(name);
    }
    let mut busy = Busy::new(name);
    let Some((age, seen)) = seen else { return busy };
    let since = |ms: i64| duration(ms.saturating_mul(MS) + age);
    // A lock that is taken by a minimum hold has no holder.
    if !lock_id::taken_by(&seen.lock_id).is_empty() {
        busy.holder = lock_id::owner(&seen.lock_id).map(str::to_owned);
        busy.in_this_process =
            Id::parse(&seen.lock_id).is_some_and(|id| !id.is_detached() && id.mark() == engine.mark);
        busy.held_for = seen.held_for.map(since);
    }
    busy.remaining = seen.left.map(|left| duration(left.saturating_mul(MS) - age));
    busy
}

fn done(name: &str, seen: Option<&(core::Span, Seen)>) -> LockError {
    let (by, until) = seen.map_or(("", 0), |(_, seen)| {
        let by = lock_id::owner(&seen.lock_id).unwrap_or_default();
        (by, seen.ends.unwrap_or_default())
    });
    LockError::done(name, by, DateTime::from_millis(until))
}

//! A call that waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::{Instrument, Span};

use super::clock::duration;
use super::hold::Hold;
use super::lease::{About, Lease};
use super::shared::Engine;
use super::words::{self, BusyLock};
use crate::core::{Ending, Event, Failure, Join, Once, Rules, Time, Waiter, Wanted};
use crate::error::meaning::Meaning;
use crate::few::Few;
use crate::meter::{AcquireOutcome, Measure};
use crate::name::RenderedName;
use crate::once;
use crate::options::{OnBusy, Options};
use crate::protocol::Sight;
use crate::store::millis;
use crate::timing::COMMAND_LIMIT;
use crate::{LeaseHandle, LockError, permit_id, task, trace};

/// What a call has found: a hold, or for a single try a lock that another holder has.
pub(crate) type Tried = Result<Hold, BusyLock>;

/// One call.
pub(crate) struct Call<'a> {
    engine: &'a Arc<Engine>,
    wanted: Wanted,
    about: About,
    is_inside_hold: bool,
    on_busy: OnBusy,
    span: Span,
}

impl<'a> Call<'a> {
    pub(crate) fn one(
        engine: &'a Arc<Engine>,
        name: &RenderedName,
        options: &Arc<Options>,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Self {
        let names = Few::one(Arc::clone(name.text()));
        let span = trace::acquire_span(std::slice::from_ref(name), 0, &engine.owner);
        let wanted = Wanted::Lock(Arc::clone(name.text()));
        let about = About::new(engine, names, 0, name.template(), options);
        Self {
            engine,
            wanted,
            about,
            is_inside_hold,
            on_busy,
            span,
        }
    }

    pub(crate) fn permit(
        engine: &'a Arc<Engine>,
        name: &RenderedName,
        permits: u32,
        options: &Arc<Options>,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Self {
        let wanted = Wanted::Permit(permit_id::group(name.text()), permits);
        Self {
            wanted,
            ..Self::one(engine, name, options, is_inside_hold, on_busy)
        }
    }

    pub(crate) fn several(
        engine: &'a Arc<Engine>,
        names: &[RenderedName],
        title: usize,
        options: &Arc<Options>,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Self {
        if let [name] = names {
            return Self::one(engine, name, options, is_inside_hold, on_busy);
        }
        let texts: Vec<Arc<str>> = names.iter().map(|name| Arc::clone(name.text())).collect();
        let span = trace::acquire_span(names, title, &engine.owner);
        let wanted = Wanted::All(texts.clone());
        let about = About::new(engine, texts.into(), title, names[title].template(), options);
        Self {
            engine,
            wanted,
            about,
            is_inside_hold,
            on_busy,
            span,
        }
    }

    pub(crate) fn resumption(
        engine: &'a Arc<Engine>,
        options: &Arc<Options>,
        is_inside_hold: bool,
        handle: &LeaseHandle,
    ) -> Self {
        let names = Few::collected(handle.ids().iter().cloned());
        let lease = |name: &Arc<str>| (Arc::clone(name), Arc::clone(handle.lock_id()));
        let leases = handle.ids().iter().map(lease).collect();
        Self {
            engine,
            wanted: Wanted::Leases(leases, millis(handle.ttl())),
            about: About {
                resumes: Some(handle.fencing_token()),
                ..About::new(engine, names, handle.title(), None, options)
            },
            is_inside_hold,
            on_busy: OnBusy::TryOnce,
            span: trace::resume_span(handle.name(), handle.owner()),
        }
    }

    /// Makes the call: the hold or, for a single try, a lock that another holder has.
    pub(crate) async fn make(self) -> Result<Tried, LockError> {
        let Self {
            engine,
            wanted,
            about,
            is_inside_hold,
            on_busy,
            span,
        } = self;
        if engine.is_forked() {
            return Err(Meaning::Forked.error());
        }
        let options = Arc::clone(&about.options);
        let limit = options.wait_limit();
        let is_try = on_busy == OnBusy::TryOnce || limit == Some(Duration::ZERO);
        let limit = if is_try {
            Some(options.attempt_limit())
        } else {
            limit
        };
        let resumes = about.resumes.is_some();
        let lease = Lease::new(engine.clock, about);
        let counted = Counted::begin(engine, &lease);
        let waiting = Waiting::new(engine, &lease, wanted, is_inside_hold, is_try, limit);
        let outcome = async {
            if engine.refuses(is_inside_hold) {
                return Err(LockError::shut_down(lease.name()));
            }
            engine.store.check()?;
            engine.index_task.ensure_running();
            match waiting.await {
                Ok(()) => {
                    let acquired = if resumes { trace::resumed } else { trace::acquired };
                    lease.report(acquired);
                    Ok(Ok(Hold::new(Arc::clone(&lease), Arc::clone(engine))))
                }
                Err(failure) => {
                    let waited = counted.waited();
                    words::failed(engine, &lease, &failure, waited, is_try).map(Err)
                }
            }
        };
        let outcome = outcome.instrument(span.clone()).await;
        counted.finish(&span, &outcome);
        outcome
    }

    /// Makes the call; it fails if the lock is busy.
    pub(crate) async fn acquire(self) -> Result<Hold, LockError> {
        let (engine, on_busy) = (self.engine, self.on_busy);
        let begun = engine.now();
        self.make().await?.map_err(|busy| match on_busy {
            OnBusy::Wait => busy.timeout(duration(engine.now() - begun)),
            OnBusy::TryOnce => busy.busy(),
        })
    }

    /// How many permits of the semaphore are free, as the server says it now.
    pub(crate) async fn available(self) -> Result<u32, LockError> {
        let Wanted::Permit(group, permits) = &self.wanted else {
            return Ok(0);
        };
        let store = &self.engine.store;
        store.check()?;
        let found = if let Some(found) = store.permits_at_once(group) {
            found
        } else {
            let (store, group) = (Arc::clone(store), Arc::clone(group));
            task::start(
                async move { task::within(COMMAND_LIMIT, store.permits(&group, COMMAND_LIMIT)).await },
            )
            .await?
        };
        let margin = millis(self.engine.config.options.takeover_margin);
        let is_taken = |(number, sight): &(u32, Sight)| number < permits && !sight.is_free(margin);
        let taken = found.iter().filter(|permit| is_taken(permit)).count();
        Ok(permits.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)))
    }
}

impl About {
    fn new(
        engine: &Engine,
        names: Few<Arc<str>>,
        title: usize,
        template: Option<&'static str>,
        options: &Arc<Options>,
    ) -> Self {
        Self {
            names,
            title,
            template,
            options: Arc::clone(options),
            resumes: None,
            span: Span::current(),
            meter: engine.meter.of(template),
        }
    }
}

/// The options as the core has them.
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

/// A call, from its first poll on. Dropped, it leaves; a hold that it was given meanwhile ends.
pub(super) struct Waiting {
    engine: Arc<Engine>,
    lease: Arc<Lease>,
    state: Waits,
}

enum Waits {
    New(Box<(Wanted, Join<Arc<Lease>>)>),
    Begun(Option<Waiter>),
    Ended,
}

impl Waiting {
    fn new(
        engine: &Arc<Engine>,
        lease: &Arc<Lease>,
        wanted: Wanted,
        is_inside_hold: bool,
        is_try: bool,
        limit: Option<Duration>,
    ) -> Self {
        let micros = |limit: Duration| i64::try_from(limit.as_micros()).unwrap_or(i64::MAX / 2);
        let join = Join {
            rules: rules(&lease.options),
            limit: limit.map(micros),
            is_try,
            is_inside_hold,
            cell: Arc::clone(lease),
        };
        Self {
            engine: Arc::clone(engine),
            lease: Arc::clone(lease),
            state: Waits::New(Box::new((wanted, join))),
        }
    }
}

impl Future for Waiting {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Waits::New(_) = self.state
            && let Waits::New(call) = std::mem::replace(&mut self.state, Waits::Begun(None))
        {
            self.engine.lend_runtime();
            let (wanted, join) = *call;
            self.state = Waits::Begun(self.engine.apply(Event::Join(wanted, join)));
        }
        let outcome = std::task::ready!(self.lease.poll_call(context));
        self.state = Waits::Ended;
        Poll::Ready(outcome)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Waits::Begun(waiter) = self.state else { return };
        if self.engine.is_forked() {
            return;
        }
        // The core takes the mutex of the lease under its own, so this one is not held then.
        let event = match self.lease.leave() {
            Ok(()) => waiter.map(Event::Leave),
            Err(hold) => hold.map(|hold| Event::End(hold, Ending::Untaken, None)),
        };
        if let Some(event) = event {
            self.engine.apply(event);
        }
    }
}

/// A call that is counted. It was cancelled if it is dropped before its end.
struct Counted {
    engine: Arc<Engine>,
    lease: Arc<Lease>,
    begun: Time,
    outcome: AcquireOutcome,
}

impl Counted {
    fn begin(engine: &Arc<Engine>, lease: &Arc<Lease>) -> Self {
        engine.waiting.fetch_add(1, Ordering::Relaxed);
        lease.meter().record(Measure::WaitBegins);
        Self {
            engine: Arc::clone(engine),
            lease: Arc::clone(lease),
            begun: engine.now(),
            outcome: AcquireOutcome::Cancelled,
        }
    }

    fn waited(&self) -> Duration {
        duration(self.engine.now() - self.begun)
    }

    /// Records how the call ended, also on its span.
    fn finish(mut self, span: &Span, outcome: &Result<Tried, LockError>) {
        self.outcome = match outcome {
            Ok(Ok(_)) => AcquireOutcome::Acquired,
            Ok(Err(_)) => AcquireOutcome::Busy,
            Err(LockError::Timeout { .. }) => AcquireOutcome::Timeout,
            Err(LockError::Done { .. }) => AcquireOutcome::Done,
            Err(LockError::ShutDown { .. }) => AcquireOutcome::ShutDown,
            Err(error) if error.meaning() == Meaning::Overloaded => AcquireOutcome::Overloaded,
            Err(_) => AcquireOutcome::Error,
        };
        if span.is_disabled() {
            return;
        }
        let token = |tried: &Tried| tried.as_ref().ok()?.lease().token().if_any();
        let ended = outcome.as_ref().map(token);
        trace::acquire_ended(span, self.waited(), self.outcome, ended);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.engine.waiting.fetch_sub(1, Ordering::Relaxed);
        let ends = Measure::WaitEnds(self.outcome, self.waited());
        self.lease.meter().record(ends);
    }
}

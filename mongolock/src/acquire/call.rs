//! What calls for a lock, for a permit and for a set have in common: their limits, their errors and their measurement.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, Span};

use super::asking::{After, Kind};
use super::claim::Claim;
use super::{Next, Outcome, Tried};
use crate::engine::Engine;
use crate::lease::{Entry, Hold, Turn};
use crate::meter::{AcquireOutcome, LockMeter};
use crate::name::RenderedName;
use crate::opaque::boxed;
use crate::options::{OnBusy, Options};
use crate::queue::{FrontStatus, Holder, SetNames};
use crate::store::{ACQUIRE_REQUEST, AdmissionClass, ClaimEnd, driver_error};
use crate::{LockError, trace};

/// One call that acquires something.
pub(crate) struct Call<'a> {
    pub(super) engine: &'a Arc<Engine>,
    /// What stands for the call in errors and events: the lock, the semaphore, or one name of the set.
    pub(super) name: &'a RenderedName,
    pub(super) options: &'a Arc<Options>,
    /// Whether the caller runs under another lock of this provider, which it keeps until this call ends.
    pub(super) is_inside_hold: bool,
    /// What measures the call; `None` for a part of a call for several locks.
    pub(super) meter: Option<LockMeter>,
    /// The time at which the call began.
    pub(super) begun: Instant,
    /// The time at which the call ends; `None` if it waits as long as the server replies.
    pub(super) deadline: Option<Instant>,
    on_busy: OnBusy,
    /// Whether the call makes a single try: also one that waits with a timeout of zero.
    pub(super) is_try: bool,
}

/// What a call looks for: one lock, all locks of a set, any permit, or a detached lease.
pub(crate) trait Search: Sync {
    /// The queues of the names that the call wants.
    type Queues: Send + Sync;

    /// What a call has already when its search begins.
    type Begun: Default + Send + Sync;

    /// Whether a try whose time is up is busy if a holder is known. Otherwise only its own search finds that.
    const IS_BUSY_WHILE_HELD: bool = true;

    fn call(&self) -> &Call<'_>;

    /// The span of the call.
    fn span(&self) -> Span {
        let Call { name, engine, .. } = self.call();
        trace::acquire_span(name.text(), name.template(), &engine.owner)
    }

    fn join(&self) -> Self::Queues;

    /// The name that the call waits for at present, and its queue: they decide the error of a call whose time is up.
    fn awaited<'s>(&'s self, queues: &'s Self::Queues) -> (&'s Arc<str>, &'s Arc<Entry>);

    /// Acquires what the call wants if that needs no longer wait.
    fn begin(
        &self,
        _: &Self::Queues,
    ) -> impl Future<Output = Result<Result<Hold, Self::Begun>, LockError>> + Send + Sync {
        async { Ok(Err(Self::Begun::default())) }
    }

    /// Sends requests until what the call wants is acquired. A single try waits for no holder.
    fn search(
        &self,
        queues: &Self::Queues,
        begun: Self::Begun,
    ) -> impl Future<Output = Result<Tried, LockError>> + Send + Sync;

    /// Waits until the time of the call is up.
    fn time_is_up(&self, queues: &Self::Queues) -> impl Future<Output = ()> + Send + Sync {
        async move {
            let (_, entry) = self.awaited(queues);
            self.call().time_is_up(entry).await;
        }
    }

    /// The search, until the time of the call is up.
    fn bounded(
        &self,
        queues: &Self::Queues,
        begun: Self::Begun,
    ) -> impl Future<Output = Result<Tried, LockError>> + Send + Sync {
        async move {
            let call = self.call();
            // The search is pinned here, because a future that is passed on takes its room twice.
            let searching = pin!(self.search(queues, begun));
            tokio::select! {
                biased;
                outcome = searching => return outcome,
                () = call.engine.until_refused(call.is_inside_hold) => return Err(call.shut_down_error()),
                () = self.time_is_up(queues) => {}
            }
            let (name, entry) = self.awaited(queues);
            match call.last_status(entry).holder() {
                Ok(holder) if call.is_try && Self::IS_BUSY_WHILE_HELD => Ok(Err(BusyLock::new(name, holder))),
                Ok(holder) => Err(call.timeout_error(name, &holder)),
                Err(status) => Err(call.error_without_holder(entry, status)),
            }
        }
    }

    /// Makes the call: the hold or, for a single try, a lock that another holder has. A longer search runs in a future on the
    /// heap: it may cost an allocation, and the future of a call stays small.
    fn make(&self) -> impl Future<Output = Result<Tried, LockError>> + Send + Sync {
        async move {
            let call = self.call();
            let (waiting, span) = (Waiting::begin(call), self.span());
            let searching = async {
                call.ensure_open()?;
                let queues = self.join();
                match self.begin(&queues).await? {
                    Ok(hold) => Ok(Ok(hold)),
                    Err(begun) => boxed(self.bounded(&queues, begun)).await,
                }
            };
            let outcome = searching.instrument(span.clone()).await;
            waiting.finish(&span, &outcome);
            outcome
        }
    }

    /// Makes the call; it fails if the lock is busy.
    fn acquire(&self) -> impl Future<Output = Result<Hold, LockError>> + Send + Sync {
        async move { self.make().await?.map_err(|busy| self.call().busy_error(&busy)) }
    }
}

/// A lock that is held, of those that a call wants.
pub(crate) struct BusyLock {
    name: Arc<str>,
    holder: Holder,
}

impl BusyLock {
    pub(super) fn new(name: &Arc<str>, holder: Holder) -> Self {
        let name = Arc::clone(name);
        Self { name, holder }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(
        engine: &'a Arc<Engine>,
        name: &'a RenderedName,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Self {
        let (begun, wait_limit) = (Instant::now(), options.wait_limit());
        let is_try = on_busy == OnBusy::TryOnce || wait_limit == Some(Duration::ZERO);
        let limit = if is_try {
            Some(options.attempt_limit())
        } else {
            wait_limit
        };
        Self {
            engine,
            name,
            options,
            is_inside_hold,
            meter: Some(engine.meter.of(name.template())),
            begun,
            deadline: limit.map(|limit| begun + limit),
            on_busy,
            is_try,
        }
    }

    /// The call for another name that is a part of this one, ends with it, and does not count as a call of its own.
    pub(super) fn part<'b>(&'b self, name: &'b RenderedName, options: &'b Arc<Options>) -> Call<'b> {
        Call {
            name,
            options,
            meter: None,
            begun: Instant::now(),
            ..*self
        }
    }

    /// Among which commands the first request is admitted. That of a single try does not wait behind those of waiting calls.
    pub(super) fn first_class(&self) -> AdmissionClass {
        if self.is_try {
            AdmissionClass::Woken
        } else {
            AdmissionClass::First
        }
    }

    pub(super) fn ensure_open(&self) -> Result<(), LockError> {
        if self.is_refused() {
            return Err(self.shut_down_error());
        }
        self.engine.store.check()?;
        self.engine.ensure_running();
        Ok(())
    }

    /// Whether nothing is sent for the call any more, because the provider shuts down.
    pub(super) fn is_refused(&self) -> bool {
        self.engine.refuses(self.is_inside_hold)
    }

    /// Waits until the deadline or, without one, until the server has not replied for too long.
    pub(super) async fn time_is_up(&self, entry: &Entry) {
        match self.deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => entry.front().no_reply(self.begun).await,
        }
    }

    /// The turn for a try when another caller in this process holds the lock or waits for it; the holder if the lock is
    /// busy. It counts as busy unless the other caller leaves, or the first known status is that the server does not
    /// work. `set` is that of a caller that takes over a hold of all its names.
    pub(super) async fn turn_unless_busy(
        &self,
        entry: &Arc<Entry>,
        set: Option<SetNames>,
    ) -> Result<Result<Turn, Holder>, LockError> {
        let status = tokio::select! {
            biased;
            status = entry.front().first_status() => status,
            turn = entry.turn_for(set) => return Ok(Ok(turn)),
            () = self.time_is_up(entry) => entry.front().status(),
        };
        match status {
            FrontStatus::Failed(error) => Err(*error),
            FrontStatus::NoReply if entry.front().is_reply_slow() => {
                Err(self.error_without_holder(entry, FrontStatus::NoReply))
            }
            // The lock is not busy: the release of a call in this process has no reply.
            _ if entry.front().is_releasing() => {
                Err(self.engine.store.unanswered("release", self.begun.elapsed()))
            }
            status => Ok(Err(status.holder().unwrap_or_default())),
        }
    }

    /// The hold that was handed over with the turn, if it is one of all these names, or of a single lock if there are none. That
    /// of a set stands for its name at the place `first`. Another hold stays with the turn.
    pub(super) fn take_over(&self, turn: &Turn, names: &[Arc<str>], first: usize) -> Option<Hold> {
        let hold = turn.take_over_if(|hold| hold.taken_over(names, self.options))?;
        let hold = hold.standing_for(first);
        hold.lease().report(trace::acquired);
        Some(hold)
    }

    /// What the call does after this outcome. A claim that this process has given up and that has the lock is released before.
    /// `entry` is the queue of the name that the call waits for.
    pub(super) async fn next_after(&self, entry: &Arc<Entry>, claim: &mut Claim, outcome: Outcome) -> Next {
        if self.is_refused() {
            return Next::Stop;
        }
        // A document of another permit may be free, so that a release on its way says nothing there.
        let knows_holder = |kind| match entry.front().status() {
            FrontStatus::Held(_) => true,
            FrontStatus::NoHolder => kind != Kind::Permit,
            FrontStatus::Failed(_) | FrontStatus::NoReply => false,
        };
        let given_up = |id: &str| self.given_up(id);
        let refused_for = self.refused_for(entry);
        let outcome = outcome.read(|hold| hold.lease().is_over());
        let next = match claim
            .asking
            .next_after(outcome, refused_for, given_up, knows_holder)
        {
            After::Clear(held, end) => {
                // The future is large and seldom needed.
                match boxed(claim.clear(&held, end)).await {
                    Ok(()) => Next::Again,
                    Err(error) => claim.asking.next_after_error(error, refused_for),
                }
            }
            After::Next(next) => next,
        };
        // A single try ends because no server can be reached: those behind it learn why.
        if let Next::End(error) = &next
            && driver_error::is_transient(error)
        {
            entry.front().set_failed(error.clone());
        }
        next
    }

    /// For how long the server has refused the user. One that it has never accepted has a wrong name or password, which does not pass.
    pub(super) fn refused_for(&self, entry: &Entry) -> Duration {
        if self.engine.store.has_been_connected() {
            entry.front().refused_for()
        } else {
            Duration::MAX
        }
    }

    /// Whether this process has given up the claim with this id, whose lock is free then.
    pub(super) fn frees(&self, lock_id: &str) -> bool {
        self.engine.renewer.given_up.frees(Instant::now(), lock_id)
    }

    /// How a claim ends that this process has given up; `None` if it has not.
    pub(super) fn given_up(&self, lock_id: &str) -> Option<ClaimEnd> {
        self.engine.renewer.given_up.find(Instant::now(), lock_id)
    }

    /// The status of the lock for a call that ends now. While the server rejects commands, its request may have waited for its
    /// place: then a lock without a known holder is not busy.
    fn last_status(&self, entry: &Entry) -> FrontStatus {
        match entry.front().status() {
            FrontStatus::NoHolder if self.engine.store.overloaded_for().is_some() => FrontStatus::NoReply,
            status => status,
        }
    }

    /// The error of a call that ends now, while no holder is known.
    fn error_without_holder(&self, entry: &Entry, status: FrontStatus) -> LockError {
        if let FrontStatus::Failed(error) = status {
            return *error;
        }
        // A reply to an earlier caller may be missing for longer than this call lasts.
        let waited = self.begun.elapsed().max(entry.front().without_reply());
        let request = if entry.front().is_releasing() {
            "release"
        } else {
            ACQUIRE_REQUEST
        };
        self.engine.store.unanswered(request, waited)
    }

    /// The error of a call that has found this lock held.
    fn busy_error(&self, busy: &BusyLock) -> LockError {
        let BusyLock { name, holder } = busy;
        match self.on_busy {
            OnBusy::Wait => self.timeout_error(name, holder),
            OnBusy::TryOnce => holder.busy_error(Instant::now(), name, &self.engine.mark),
        }
    }

    pub(super) fn timeout_error(&self, name: &str, holder: &Holder) -> LockError {
        let waited = self.begun.elapsed();
        holder.timeout_error(Instant::now(), name, waited, &self.engine.mark)
    }

    pub(super) fn shut_down_error(&self) -> LockError {
        LockError::ShutDown {
            name: self.name.text().to_string(),
        }
    }
}

/// Releases holds that were handed over with turns: they have claims of their own. Cancel safe: all of them are taken first,
/// and each releases itself when it is dropped.
pub(super) async fn release_handed_over(turns: &[Turn]) {
    let taken = turns.iter().filter_map(|turn| {
        let handed_over = turn.take_over()?;
        Some((turn, turn.front().request_sent(), handed_over))
    });
    for (turn, release, handed_over) in taken.collect::<Vec<_>>() {
        // No request for this name need follow for a while, so that nothing else would note the reply.
        if boxed(handed_over.release_for_next()).await {
            turn.front().replied(release);
        }
    }
}

/// One call that waits for a lock, or for several. It was cancelled if it is dropped before its end.
struct Waiting<'a> {
    call: &'a Call<'a>,
    outcome: AcquireOutcome,
}

impl<'a> Waiting<'a> {
    /// Begins to count a call; without a meter it is a part of another call, which counts alone.
    fn begin(call: &'a Call<'a>) -> Self {
        if let Some(meter) = &call.meter {
            call.engine.wait_begins();
            meter.wait_begins();
        }
        Self {
            call,
            outcome: AcquireOutcome::Cancelled,
        }
    }

    /// Records how the call ended, also on its span.
    fn finish(mut self, span: &Span, outcome: &Result<Tried, LockError>) {
        self.outcome = match outcome {
            Ok(Ok(_)) => AcquireOutcome::Acquired,
            Ok(Err(_)) => AcquireOutcome::Busy,
            Err(LockError::Timeout { .. }) => AcquireOutcome::Timeout,
            Err(LockError::Done { .. }) => AcquireOutcome::Done,
            Err(LockError::ShutDown { .. }) => AcquireOutcome::ShutDown,
            Err(error) if driver_error::is_overload(error) => AcquireOutcome::Overloaded,
            Err(_) => AcquireOutcome::Error,
        };
        // Most programs record no span, and the token costs a mutex.
        if span.is_disabled() {
            return;
        }
        let token = |tried: &Tried| tried.as_ref().ok()?.lease().token().if_any();
        let ended = outcome.as_ref().map(token);
        trace::acquire_ended(span, self.call.begun.elapsed(), self.outcome, ended);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(meter) = &self.call.meter {
            self.call.engine.wait_ends();
            meter.wait_ends(self.outcome, self.call.begun.elapsed());
        }
    }
}

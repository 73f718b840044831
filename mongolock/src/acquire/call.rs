//! What calls for a lock, for a permit and for a set have in common: their limits, their errors and their measurement.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, Span};

use super::asking::{After, Asking, Kind};
use super::{Next, Outcome, Tried};
use crate::engine::Engine;
use crate::lease::{Entry, Hold, Turn};
use crate::meter::{AcquireOutcome, LockMeter};
use crate::name::RenderedName;
use crate::opaque::boxed;
use crate::options::{OnBusy, Options};
use crate::queue::{FrontStatus, Holder, SetNames};
use crate::store::{ACQUIRE_REQUEST, LeaseId, ProviderMark, driver_error};
use crate::timing::{ACQUIRE_OVERDUE, RELEASE_LIMIT};
use crate::{LockError, task, trace};

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
}

/// What a call looks for: one lock, all locks of a set, or any permit.
pub(crate) trait Search: Sync {
    /// The queues of the names that the call wants.
    type Queues: Send + Sync;

    fn call(&self) -> &Call<'_>;

    /// The span of the call.
    fn span(&self) -> Span {
        let Call { name, engine, .. } = self.call();
        trace::acquire_span(name.text(), name.template(), &engine.owner)
    }

    fn join(&self) -> Self::Queues;

    /// The name that the call waits for at present, and its queue: they decide the error of a call whose time is up.
    fn awaited<'s>(&'s self, queues: &'s Self::Queues) -> (&'s Arc<str>, &'s Arc<Entry>);

    /// Sends requests until it is known whether what the call wants is free; it waits for no holder.
    fn attempt(
        &self,
        queues: &Self::Queues,
        deadline: Instant,
    ) -> impl Future<Output = Result<Tried, LockError>> + Send + Sync;

    /// Waits until the deadline.
    fn search(
        &self,
        queues: Self::Queues,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Hold, LockError>> + Send;

    /// Waits until the deadline or, without one, until the server has not replied for too long.
    fn time_is_up(
        &self,
        queues: &Self::Queues,
        deadline: Option<Instant>,
    ) -> impl Future<Output = ()> + Send + Sync {
        async move {
            let (_, entry) = self.awaited(queues);
            self.call().deadline(entry, deadline).await;
        }
    }

    /// The outcome of a try whose time is up, while the last status is that this holder has the lock.
    fn held_by(&self, name: &Arc<str>, holder: Holder) -> Result<Tried, LockError> {
        Ok(Err(BusyLock::new(name, holder)))
    }

    /// One step of the call; `None` if its time is up before.
    async fn bounded<F: Future>(
        &self,
        queues: &Self::Queues,
        deadline: Option<Instant>,
        step: F,
    ) -> Result<Option<F::Output>, LockError> {
        let call = self.call();
        tokio::select! {
            biased;
            output = step => Ok(Some(output)),
            () = call.engine.until_refused(call.is_inside_hold) => Err(call.shut_down_error()),
            () = self.time_is_up(queues, deadline) => Ok(None),
        }
    }

    /// The error of a wait whose time is up.
    fn gave_up(&self, queues: &Self::Queues) -> LockError {
        let (name, entry) = self.awaited(queues);
        self.call().gave_up_error(name, entry, entry.front().status())
    }

    async fn attempt_once(&self) -> Result<Tried, LockError> {
        let call = self.call();
        call.ensure_open()?;
        let queues = self.join();
        let deadline = call.begun + call.options.attempt_limit();
        let trying = boxed(self.attempt(&queues, deadline));
        if let Some(tried) = self.bounded(&queues, Some(deadline), trying).await? {
            return tried;
        }
        let (name, entry) = self.awaited(&queues);
        match entry.front().status().holder() {
            Ok(holder) => self.held_by(name, holder),
            Err(status) => Err(call.gave_up_error(name, entry, status)),
        }
    }

    /// Waits until the acquire timeout.
    async fn wait(&self) -> Result<Hold, LockError> {
        let call = self.call();
        let (waiting, span) = (Waiting::begin(call), self.span());
        let outcome = match call.options.wait_limit() {
            // A call with a timeout of zero still makes one try.
            Some(Duration::ZERO) => self.attempt_once().instrument(span.clone()).await,
            limit => {
                let deadline = limit.map(|limit| call.begun + limit);
                let searching = async {
                    call.ensure_open()?;
                    self.search(self.join(), deadline).await
                };
                searching.instrument(span.clone()).await.map(Ok)
            }
        };
        waiting.finish(&span, &outcome);
        outcome?.map_err(|busy| call.timeout_error(&busy.name, &busy.holder))
    }

    /// Makes a single try.
    async fn try_once(&self) -> Result<Tried, LockError> {
        let (waiting, span) = (Waiting::begin(self.call()), self.span());
        let outcome = self.attempt_once().instrument(span.clone()).await;
        waiting.finish(&span, &outcome);
        outcome
    }

    /// Acquires as the caller wants it: it waits, or it makes a single try that fails if the lock is busy.
    async fn acquire(&self, on_busy: OnBusy) -> Result<Hold, LockError> {
        match on_busy {
            OnBusy::Wait => self.wait().await,
            OnBusy::TryOnce => {
                let tried = self.try_once().await?;
                tried.map_err(|busy| busy.error(&self.call().engine.mark))
            }
        }
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

    /// The error of a call that does not wait, of a provider with this mark.
    fn error(&self, own: &ProviderMark) -> LockError {
        self.holder.busy_error(Instant::now(), &self.name, own)
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(
        engine: &'a Arc<Engine>,
        name: &'a RenderedName,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
    ) -> Self {
        Self {
            engine,
            name,
            options,
            is_inside_hold,
            meter: Some(engine.meter.of(name.template())),
            begun: Instant::now(),
        }
    }

    pub(super) fn ensure_open(&self) -> Result<(), LockError> {
        if self.is_refused() {
            return Err(self.shut_down_error());
        }
        self.engine.ensure_running();
        Ok(())
    }

    /// Whether nothing is sent for the call any more, because the provider shuts down.
    pub(super) fn is_refused(&self) -> bool {
        self.engine.refuses(self.is_inside_hold)
    }

    /// Waits until the deadline or, without one, until the server has not replied for too long.
    pub(super) async fn deadline(&self, entry: &Entry, deadline: Option<Instant>) {
        match deadline {
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
        let by = self.begun + self.options.attempt_limit();
        let status = tokio::select! {
            biased;
            status = entry.front().first_status() => status,
            turn = entry.turn_for(set) => return Ok(Ok(turn)),
            () = sleep_until(by) => entry.front().status(),
        };
        match status {
            FrontStatus::Failed(error) => Err(*error),
            FrontStatus::NoReply if entry.front().is_reply_slow() => {
                Err(self.gave_up_error(entry.name(), entry, FrontStatus::NoReply))
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

    /// What the call does after this outcome. A claim of this process that has the lock of this name is released before.
    pub(super) async fn next_after(
        &self,
        entry: &Arc<Entry>,
        asking: &mut Asking,
        name: &Arc<str>,
        outcome: Outcome,
    ) -> Next {
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
        let next = match asking.next_after(outcome, given_up, knows_holder) {
            After::Clear(held, min_hold) => {
                // The future is large and seldom needed.
                match boxed(self.release_given_up(entry, name, &held.holder, min_hold)).await {
                    Ok(()) => Next::Again,
                    Err(error) => asking.next_after_error(error),
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

    /// The minimum hold of a claim that this process has given up; `None` if it has not.
    pub(super) fn given_up(&self, lock_id: &str) -> Option<Duration> {
        self.engine.renewer.given_up.find(Instant::now(), lock_id)
    }

    /// Releases a claim that this process has given up and that a reply has named: a lost reply or a cancelled call must not
    /// make the lock busy.
    async fn release_given_up(
        &self,
        entry: &Arc<Entry>,
        name: &Arc<str>,
        holder: &Holder,
        min_hold: Duration,
    ) -> Result<(), LockError> {
        let Some(lock_id) = holder.lock_id().cloned() else {
            return Ok(());
        };
        let name = Arc::clone(name);
        let key = LeaseId { name, lock_id };
        let store = Arc::clone(&self.engine.store);
        entry.front().set_no_holder();
        let number = entry.front().release_sent();
        let entry = Arc::clone(entry);
        let release = async move {
            let reply = store
                .release(std::slice::from_ref(&key), min_hold, RELEASE_LIMIT)
                .await;
            if reply.is_ok() {
                entry.front().released(number);
            }
            reply
        };
        // Without a reply the next acquire request shows whether the claim still has the lock.
        match tokio::time::timeout(ACQUIRE_OVERDUE, task::start(release)).await {
            Ok(reply) => reply.map(drop),
            Err(_) => Ok(()),
        }
    }

    /// The error of a call for this name that ends now, by what is known of the lock.
    pub(super) fn gave_up_error(&self, name: &str, entry: &Entry, status: FrontStatus) -> LockError {
        match status.holder() {
            Ok(holder) => self.timeout_error(name, &holder),
            Err(FrontStatus::Failed(error)) => *error,
            Err(_) => {
                // A reply to an earlier caller may be missing for longer than this call lasts.
                let waited = self.begun.elapsed().max(entry.front().without_reply());
                let request = if entry.front().is_releasing() {
                    "release"
                } else {
                    ACQUIRE_REQUEST
                };
                self.engine.store.unanswered(request, waited)
            }
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
            Err(_) => AcquireOutcome::Error,
        };
        let hold = outcome.as_ref().ok().and_then(|tried| tried.as_ref().ok());
        let token = hold.and_then(|hold| hold.lease().fencing_token());
        trace::acquire_ended(span, self.call.begun.elapsed(), self.outcome, token);
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

//! Getting a lease: how one call waits for a lock, and how it fails.

mod asking;
mod attempt;
mod pacing;
mod period;
mod permit;
mod query;
mod several;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span};

use crate::acquire::asking::{Asking, Held};
use crate::acquire::attempt::{Attempt, late_outcome};
use crate::acquire::pacing::{Pacing, place_until};
use crate::acquire::period::CallPeriod;
use crate::engine::Engine;
use crate::lease::{Entry, Hold, Turn};
use crate::meter::{AcquireOutcome, LockMeter};
use crate::moment::Luck;
use crate::name::RenderedName;
use crate::once::{MarkEnd, Once};
use crate::opaque::boxed;
use crate::options::Options;
use crate::queue::{FrontStatus, Holder, Period};
use crate::store::{ACQUIRE_REQUEST, LeaseId};
use crate::timing::{ACQUIRE_OVERDUE, RELEASE_LIMIT};
use crate::{LockError, lock_id, task, trace};
pub(crate) use permit::AcquirePermit;
pub(crate) use several::AcquireSeveral;

/// One call that acquires a lock.
pub(crate) struct Acquire<'a> {
    engine: &'a Arc<Engine>,
    name: &'a RenderedName,
    options: &'a Arc<Options>,
    /// Whether the caller runs under another lock of this provider, which it keeps until it gets this one.
    is_inside_hold: bool,
    /// The call for several locks of which this one acquires the first: it takes over a hold of them all.
    set: Option<&'a AcquireSeveral<'a>>,
    /// What measures the call; `None` for a part of a call for several locks.
    meter: Option<LockMeter>,
    /// The time at which the call began.
    begun: Instant,
    /// The period that the call belongs to, if its work may succeed once in each period.
    period: CallPeriod,
    /// How long the call has waited behind others of this process before its first request.
    waited: OnceLock<Duration>,
}

/// How a request has ended.
type Outcome = asking::Outcome<Hold>;

/// What a call does when a request has ended.
type Next = asking::Next<Hold>;

/// The outcome of a single try: the lock, or its holder.
pub(crate) type Tried = Result<Hold, Holder>;

/// What a call does after the outcome of a request.
enum Step {
    /// The call ends with this hold.
    Acquired(Hold),
    /// The call waits for this holder.
    Held(Holder),
    /// The call sends another request after this pause.
    Retry(Duration),
}

/// The first request of a call, which was sent before the call began to wait, and its outcome if there is one. It is on the
/// heap, so that the future of a waiting call stays small.
type First = Box<(Attempt, Option<Outcome>)>;

impl<'a> Acquire<'a> {
    pub(crate) fn new(
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
            set: None,
            meter: Some(engine.meter.of(name.template())),
            begun: Instant::now(),
            period: CallPeriod::default(),
            waited: OnceLock::new(),
        }
    }

    fn name(&self) -> &'a Arc<str> {
        self.name.text()
    }

    /// Waits for the lock until the acquire timeout.
    pub(crate) async fn wait(&self) -> Result<Hold, LockError> {
        let waiting = Waiting::begin(self.engine, self.meter.as_ref(), self.begun);
        let span = trace::acquire_span(self.name(), self.name.template(), &self.engine.owner);
        let outcome = match self.options.wait_limit() {
            // A call with a timeout of zero still sends one request.
            Some(Duration::ZERO) => boxed(self.attempt_once()).instrument(span.clone()).await,
            limit => {
                let deadline = limit.map(|limit| self.begun + limit);
                self.wait_in_turn(deadline).instrument(span.clone()).await.map(Ok)
            }
        };
        waiting.end(&span, &outcome);
        outcome?.map_err(|holder| self.timeout_error(&holder))
    }

    /// Tries to acquire the lock, or returns its holder; no request is sent if another caller in this process holds the
    /// lock or waits for it.
    pub(crate) async fn try_once(&self) -> Result<Tried, LockError> {
        let waiting = Waiting::begin(self.engine, self.meter.as_ref(), self.begun);
        let span = trace::acquire_span(self.name(), self.name.template(), &self.engine.owner);
        let outcome = self.attempt_once().instrument(span.clone()).await;
        waiting.end(&span, &outcome);
        outcome
    }

    async fn attempt_once(&self) -> Result<Tried, LockError> {
        self.ensure_open()?;
        let entry = self.engine.queues.join(self.name());
        let turn = match entry.try_turn() {
            Some(turn) => turn,
            None => match boxed(self.turn_unless_busy(&entry)).await? {
                Ok(turn) => turn,
                Err(holder) => return Ok(Err(holder)),
            },
        };
        let deadline = Some(self.begun + self.options.attempt_limit());
        let attempting = self.bounded(
            &entry,
            deadline,
            boxed(self.request_until_reply(&entry, &turn, deadline)),
        );
        match attempting.await? {
            Some(result) => Ok(result?.map(|hold| self.deliver(hold, &entry, turn))),
            None => match entry.front().status().holder() {
                Ok(holder) => Ok(Err(holder)),
                Err(status) => Err(self.gave_up_error(&entry, status)),
            },
        }
    }

    /// Sends requests until a reply says whether the lock is free.
    async fn request_until_reply(
        &self,
        entry: &Arc<Entry>,
        turn: &Turn,
        deadline: Option<Instant>,
    ) -> Result<Tried, LockError> {
        if let Some(hold) = self.take_over_hold(entry, turn).await {
            return Ok(Ok(hold));
        }
        let mut pacing = Pacing::new(self.engine, turn, self.begun);
        let (mut attempt, mut late) = (self.new_attempt(entry).unlimited(), None);
        loop {
            let outcome = match late.take() {
                Some(outcome) => outcome,
                None => attempt.request(deadline).await,
            };
            match self.step(entry, &mut attempt, &mut pacing, outcome).await? {
                Step::Acquired(hold) => return Ok(Ok(hold)),
                Step::Held(holder) => return Ok(Err(holder)),
                Step::Retry(pause) => {
                    late = late_outcome(pin!(attempt.next_outcome()), pin!(sleep(pause))).await;
                }
            }
        }
    }

    /// Sends a request at once if no other caller in this process holds the lock or waits for it. A longer wait runs in a
    /// future on the heap: it may cost an allocation, and the future of a call stays small.
    async fn wait_in_turn(&self, deadline: Option<Instant>) -> Result<Hold, LockError> {
        self.ensure_open()?;
        let entry = self.engine.queues.join(self.name());
        let (turn, first) = match entry.try_turn() {
            Some(turn) if turn.is_fresh() && place_until(self.engine, self.name()).is_none() => {
                let mut attempt = self.new_attempt(&entry);
                match self.first_outcome(&mut attempt, deadline).await? {
                    Some(Outcome::Acquired(hold))
                        if !hold.lease().is_over() && self.options.once.is_none() =>
                    {
                        return Ok(self.deliver(hold, &entry, turn));
                    }
                    outcome => (Some(turn), Some(Box::new((attempt, outcome)))),
                }
            }
            turn => (turn, None),
        };
        boxed(self.wait_until_deadline(entry, turn, first, deadline)).await
    }

    /// The outcome of the first request; `None` if it cannot be sent at once or its reply is overdue.
    async fn first_outcome(
        &self,
        attempt: &mut Attempt,
        deadline: Option<Instant>,
    ) -> Result<Option<Outcome>, LockError> {
        let Some(overdue) = attempt.try_send(deadline) else {
            return Ok(None);
        };
        if attempt.has_reply() {
            return Ok(Some(attempt.next_outcome().await));
        }
        tokio::select! {
            biased;
            outcome = tokio::time::timeout_at(overdue, attempt.next_outcome()) => Ok(outcome.ok()),
            () = self.engine.until_refused(self.is_inside_hold) => Err(self.shut_down_error()),
        }
    }

    async fn wait_until_deadline(
        &self,
        entry: Arc<Entry>,
        turn: Option<Turn>,
        first: Option<First>,
        deadline: Option<Instant>,
    ) -> Result<Hold, LockError> {
        // The wait is pinned here, because a future that is passed on takes its room twice.
        let waiting = pin!(self.wait_for_lock(&entry, turn, first, deadline));
        match self.bounded(&entry, deadline, waiting).await? {
            Some(result) => result,
            None => Err(self.gave_up_error(&entry, entry.front().status())),
        }
    }

    /// Waits for the turn, and then sends requests until the lock is acquired.
    async fn wait_for_lock(
        &self,
        entry: &Arc<Entry>,
        turn: Option<Turn>,
        first: Option<First>,
        deadline: Option<Instant>,
    ) -> Result<Hold, LockError> {
        let turn = if let Some(turn) = turn {
            turn
        } else {
            let turn = entry.turn_for(self.set.map(AcquireSeveral::set)).await;
            self.waited.get_or_init(|| self.begun.elapsed());
            turn
        };
        if first.is_none()
            && let Some(hold) = self.take_over_or_yield(entry, &turn).await
        {
            return Ok(self.deliver(hold, entry, turn));
        }
        let mut pacing = Pacing::new(self.engine, &turn, self.begun);
        if first.is_none() {
            pacing.wait_for_place(deadline, self.options.once.is_some()).await;
        }
        let (mut attempt, mut outcome) =
            first.map_or_else(|| (self.new_attempt(entry), None), |first| *first);
        loop {
            // A request takes more room than a pause, so that it has room of its own only as long as it lasts.
            let step = Box::pin(self.next_step(entry, &mut attempt, &mut pacing, outcome, deadline));
            let pause = match step.await? {
                Step::Acquired(hold) => {
                    // The turn goes with the lease. A late reply to a query of the notifier must not replace the holder that
                    // is noted now.
                    drop(pacing);
                    return Ok(self.deliver(hold, entry, turn));
                }
                Step::Held(holder) => {
                    turn.budget().shrink();
                    let remaining = holder.remaining(Instant::now());
                    let pause = pacing.after_held(attempt.lock_id(), self.options.once.is_some(), remaining);
                    trace::waiting(self.name(), remaining, pause);
                    pause
                }
                Step::Retry(pause) => pause,
            };
            outcome = late_outcome(pin!(attempt.next_outcome()), pin!(pacing.pause(pause))).await;
        }
    }

    /// Delivers the hold to the caller: the turn goes with the lease, and the waiters behind wait for its holder.
    fn deliver(&self, hold: Hold, entry: &Entry, turn: Turn) -> Hold {
        let lease = hold.lease();
        let period = lease.once.and_then(|once| match once.mark_end {
            MarkEnd::At(end) => {
                let left = end
                    .timestamp_millis()
                    .saturating_sub(once.acquired_at.timestamp_millis());
                let ends = Instant::now() + Duration::from_millis(u64::try_from(left).unwrap_or_default());
                Some(Period { end, ends })
            }
            MarkEnd::After(_) => None,
        });
        let holder = Holder::local(&lease.key.lock_id, lease.acquired);
        entry.front().set_held(holder.in_period(period));
        lease.deliver(turn, self.meter.as_ref());
        hold
    }

    /// Sends a request, unless there is an outcome already, and decides what the call does after it.
    async fn next_step(
        &self,
        entry: &Arc<Entry>,
        attempt: &mut Attempt,
        pacing: &mut Pacing<'_>,
        outcome: Option<Outcome>,
        deadline: Option<Instant>,
    ) -> Result<Step, LockError> {
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => attempt.request(deadline).await,
        };
        self.step(entry, attempt, pacing, outcome).await
    }

    /// Decides what the call does after the outcome of a request.
    async fn step(
        &self,
        entry: &Arc<Entry>,
        attempt: &mut Attempt,
        pacing: &mut Pacing<'_>,
        outcome: Outcome,
    ) -> Result<Step, LockError> {
        let outcome = match outcome.read(|hold| hold.lease().is_over()) {
            Outcome::Acquired(hold) if !self.is_refused() => Outcome::Acquired(self.in_period(hold)?),
            Outcome::Held(held) if !self.is_refused() => Outcome::Held(self.unless_done(held)?),
            other => other,
        };
        let (asking, name) = (&mut attempt.asking, self.name());
        match self.next_after(entry, asking, name, outcome).await {
            Next::Deliver(hold) => Ok(Step::Acquired(hold)),
            Next::ClaimAnew => {
                *attempt = attempt.anew();
                Ok(Step::Retry(Duration::ZERO))
            }
            Next::Clear(..) | Next::Again => Ok(Step::Retry(Duration::ZERO)),
            Next::Held(held) => {
                entry.front().set_holder(held.holder.clone());
                Ok(Step::Held(held.holder))
            }
            Next::Pause(error) | Next::Leave(error) => {
                let pause = pacing.after_error();
                if let Some(error) = error {
                    trace::retrying(self.name(), &error, pause);
                    entry.front().set_failed(error);
                }
                Ok(Step::Retry(pause))
            }
            Next::End(error) => Err(error),
            Next::Stop => Err(self.shut_down_error()),
        }
    }

    /// What the call does after this outcome. A claim of this process that has the lock of this name is released before.
    async fn next_after(
        &self,
        entry: &Arc<Entry>,
        asking: &mut Asking,
        name: &Arc<str>,
        outcome: Outcome,
    ) -> Next {
        if self.is_refused() {
            return Next::Stop;
        }
        if let Outcome::Held(held) = &outcome {
            let lines = &self.engine.lines;
            lines.found_held(name, held.holder.lock_id(), held.request);
        }
        let given_up = |id: &str| self.engine.renewer.given_up.find(Instant::now(), id);
        let knows_holder = || entry.front().status().holder().is_ok();
        match asking.next_after(outcome, given_up, knows_holder) {
            Next::Clear(held, min_hold) => {
                // The future is large and seldom needed.
                match boxed(self.release_given_up(entry, name, &held.holder, min_hold)).await {
                    Ok(()) => Next::Again,
                    Err(error) => asking.next_after_error(error),
                }
            }
            next => next,
        }
    }

    /// Whether nothing is sent for the call any more, because the provider shuts down.
    fn is_refused(&self) -> bool {
        self.engine.refuses(self.is_inside_hold)
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

    /// The hold that was handed over with the turn. If there is none, other processes get a moment to acquire the lock
    /// when the hand-over budget of this process is used up.
    async fn take_over_or_yield(&self, entry: &Entry, turn: &Turn) -> Option<Hold> {
        let taken_over = self.take_over_hold(entry, turn).await;
        if taken_over.is_none()
            && let Some(pause) = yields(turn)
        {
            tokio::time::sleep(pause).await;
        }
        taken_over
    }

    /// The hold that was handed over with the turn, if its options are those of this call; otherwise it is released.
    async fn take_over_hold(&self, entry: &Entry, turn: &Turn) -> Option<Hold> {
        if let Some(hold) = self.set.and_then(|set| set.take_over(turn)) {
            return Some(hold);
        }
        match turn.take_over()?.take(&[], self.options) {
            Ok(hold) => {
                trace::acquired(&hold.lease().fields());
                Some(hold)
            }
            Err(other) => {
                // The outcome of the release does not matter to this call; a missing reply does.
                let release = entry.front().request_sent();
                if boxed(other.release()).await {
                    entry.front().replied(release);
                }
                None
            }
        }
    }

    fn ensure_open(&self) -> Result<(), LockError> {
        if self.is_refused() {
            return Err(self.shut_down_error());
        }
        self.engine.ensure_running();
        Ok(())
    }

    fn new_attempt(&self, entry: &Arc<Entry>) -> Attempt {
        let attempt = Attempt::new(self.engine, self.name(), self.options, entry);
        if self.options.await_release {
            attempt
        } else {
            attempt.with_handovers()
        }
    }

    /// One step of the call; `None` at its deadline or, without one, when the server has not replied for too long.
    async fn bounded<F: Future>(
        &self,
        entry: &Entry,
        deadline: Option<Instant>,
        step: F,
    ) -> Result<Option<F::Output>, LockError> {
        let time_is_up = async {
            if let Some(once @ Once::PerPeriod(_)) = self.options.once {
                // It is on the heap, because every waiter would have room for it, and few have periods.
                return boxed(self.deadline_or_period_end(entry, deadline, once)).await;
            }
            self.deadline(entry, deadline).await;
        };
        tokio::select! {
            biased;
            output = step => Ok(Some(output)),
            () = self.engine.until_refused(self.is_inside_hold) => Err(self.shut_down_error()),
            () = time_is_up => Ok(None),
        }
    }

    /// Waits until the deadline or, without one, until the server has not replied for too long.
    async fn deadline(&self, entry: &Entry, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => entry.front().no_reply(self.begun).await,
        }
    }

    /// [`deadline`](Self::deadline) of a call that ends with its period as well.
    async fn deadline_or_period_end(&self, entry: &Entry, deadline: Option<Instant>, once: Once) {
        let known = |period| {
            self.period.adopt(once, period, self.begun);
            self.period.known()
        };
        let period_end = async {
            let period = entry.front().until_period(known).await;
            // By this process's clock, a period does not end before its end at the server.
            tokio::time::sleep_until(period.ends).await;
        };
        tokio::select! {
            biased;
            () = self.deadline(entry, deadline) => {}
            () = period_end => {}
        }
    }

    /// The hold, unless it was granted in a later period than that of the call: it is then released, because the work
    /// would use that period up.
    fn in_period(&self, hold: Hold) -> Result<Hold, LockError> {
        if let (Some(once), Some(grant)) = (self.options.once, hold.lease().once) {
            // The request of the first answer may be older than the grant, which a later copy of it got.
            self.answered(once, grant.requested_at.min(grant.acquired_at));
            if self.period.is_over_at(grant.acquired_at) {
                return Err(self.timeout_error(&Holder::default()));
            }
        }
        Ok(hold)
    }

    /// The holder that a reply has named; an error if it is the mark of work that is done, or if the call's period is
    /// over. A lock whose work may succeed any number of times is held by a mark as by any holder.
    fn unless_done(&self, held: Held) -> Result<Held, LockError> {
        let lock_id = held.holder.lock_id();
        let (Some(once), Some(dates)) = (self.options.once, held.dates) else {
            return Ok(held);
        };
        self.answered(once, dates.now);
        if self.period.is_over_at(dates.now) {
            return Err(self.timeout_error(&held.holder));
        }
        match lock_id.filter(|id| lock_id::is_mark(id)) {
            Some(mark) => Err(LockError::Done {
                name: self.name().to_string(),
                by: lock_id::owner(mark).unwrap_or_default().to_owned(),
                until: dates.expires_at,
            }),
            None => Ok(Held {
                holder: held.holder.in_period(self.period.known()),
                ..held
            }),
        }
    }

    /// Notes an answer with this time of the server; the first one decides which period the call belongs to.
    fn answered(&self, once: Once, now: DateTime) {
        if self.period.known().is_some() {
            return;
        }
        self.period.answered(
            Instant::now(),
            once,
            now,
            self.waited.get().copied().unwrap_or_default(),
        );
        if let Once::PerPeriod(period) = once
            && once.is_close_to_boundary(now)
            && self.engine.is_first_warning(self.name())
        {
            trace::close_to_boundary(self.name(), period);
        }
    }

    /// The turn for a try when another caller in this process holds the lock or waits for it; the holder if the lock is
    /// busy. It counts as busy unless the other caller leaves, or the first known status is that the server does not
    /// work.
    async fn turn_unless_busy(&self, entry: &Arc<Entry>) -> Result<Result<Turn, Holder>, LockError> {
        let by = self.begun + self.options.attempt_limit();
        let status = tokio::select! {
            biased;
            status = entry.front().first_status() => status,
            turn = entry.turn_for(self.set.map(AcquireSeveral::set)) => return Ok(Ok(turn)),
            () = tokio::time::sleep_until(by) => entry.front().status(),
        };
        match status {
            FrontStatus::Failed(error) => Err(*error),
            FrontStatus::NoReply if entry.front().is_reply_slow() => {
                Err(self.gave_up_error(entry, FrontStatus::NoReply))
            }
            // The lock is not busy: the release of a call in this process has no reply.
            _ if entry.front().is_releasing() => {
                Err(self.engine.store.unanswered("release", self.begun.elapsed()))
            }
            status => Ok(Err(status.holder().unwrap_or_default())),
        }
    }

    fn gave_up_error(&self, entry: &Entry, status: FrontStatus) -> LockError {
        match status.holder() {
            Ok(holder) => self.timeout_error(&holder),
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

    fn timeout_error(&self, holder: &Holder) -> LockError {
        holder.timeout_error(
            Instant::now(),
            self.name(),
            self.begun.elapsed(),
            &self.engine.mark,
        )
    }

    fn shut_down_error(&self) -> LockError {
        LockError::ShutDown {
            name: self.name().to_string(),
        }
    }
}

/// The pause of a caller before its request, if the row of hand-overs before it has used its time up.
fn yields(turn: &Turn) -> Option<Duration> {
    let mut budget = turn.budget();
    let must_yield = budget.must_yield();
    must_yield.then(|| budget.yield_to_others(Luck::draw()))
}

/// One call that waits for a lock, or for several. It was cancelled if it is dropped before its end.
struct Waiting<'a> {
    engine: &'a Engine,
    meter: Option<&'a LockMeter>,
    begun: Instant,
    outcome: AcquireOutcome,
}

impl<'a> Waiting<'a> {
    /// Begins to count a call; without a meter it is a part of another call, which counts alone.
    fn begin(engine: &'a Engine, meter: Option<&'a LockMeter>, begun: Instant) -> Self {
        if let Some(meter) = meter {
            engine.wait_begins();
            meter.wait_begins();
        }
        Self {
            engine,
            meter,
            begun,
            outcome: AcquireOutcome::Cancelled,
        }
    }

    /// Records how the call ended, also on its span.
    fn end<B>(mut self, span: &Span, outcome: &Result<Result<Hold, B>, LockError>) {
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
        trace::acquire_ended(span, self.begun.elapsed(), self.outcome, token);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(meter) = self.meter {
            self.engine.wait_ends();
            meter.wait_ends(self.outcome, self.begun.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::task::coop::consume_budget;

    use super::*;
    use crate::LockProvider;
    use crate::task::is_pending;

    /// The lock is acquired at once, and the caller's thread is busy until the lease is over.
    #[tokio::test(start_paused = true)]
    async fn a_hold_that_is_over_is_not_handed_out() {
        let expiry = Duration::from_secs(1);
        let lock = LockProvider::in_memory().lock("n").expiry(expiry);
        let mut acquiring = Box::pin(lock.max_hold(Duration::ZERO).acquire());
        // The caller takes the reply when it runs again, because this run has used up its budget.
        while !is_pending(pin!(consume_budget())).await {}
        assert!(is_pending(acquiring.as_mut()).await);
        tokio::time::sleep(expiry * 2).await;
        let guard = acquiring.await.unwrap();
        assert!(!guard.lease().is_over());
        assert!(guard.remaining() > expiry / 2);
    }

    /// The lease ends between the reply and the call's next step, as when the caller's thread is stopped there.
    #[tokio::test(start_paused = true)]
    async fn a_hold_that_ends_meanwhile_is_acquired_anew() {
        let provider = LockProvider::in_memory();
        let (engine, name) = (provider.engine(), RenderedName::new("n"));
        let options = Arc::new(Options::default());
        let acquire = Acquire::new(engine, &name, &options, false);
        let entry = engine.queues.join(name.text());
        let mut attempt = acquire.new_attempt(&entry);
        let turn = entry.try_turn().unwrap();
        let mut pacing = Pacing::new(engine, &turn, acquire.begun);
        let first_id = Arc::clone(attempt.lock_id());
        let outcome = attempt.request(None).await;
        let Outcome::Acquired(hold) = &outcome else {
            panic!("the lock is free");
        };
        hold.lease().end(crate::LossReason::Expired);
        let step = acquire.step(&entry, &mut attempt, &mut pacing, outcome).await;
        assert!(matches!(step, Ok(Step::Retry(Duration::ZERO))));
        assert_ne!(*attempt.lock_id(), first_id, "the first claim is released");
    }

    /// Thousands of calls may wait at the same time, each in a future of its own.
    #[tokio::test]
    async fn the_future_of_a_wait_is_small() {
        let provider = LockProvider::in_memory();
        let (engine, name) = (provider.engine(), RenderedName::new("n"));
        let options = Arc::new(Options::default());
        let acquire = Acquire::new(engine, &name, &options, false);
        let entry = engine.queues.join(name.text());
        let size = size_of_val(&acquire.wait_until_deadline(entry, None, None, None));
        assert!(size <= 1152, "{size}");
    }
}

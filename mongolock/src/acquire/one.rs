//! Getting one lock.

mod once;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::call::{BusyLock, Call, Search, release_handed_over};
use super::claim::{Claim, late_outcome};
use super::pacing::{Pacing, yields_until};
use super::period::CallPeriod;
use super::{Next, Outcome, Tried};
use crate::engine::Engine;
use crate::lease::{Entry, Hold, QueueSlot, Turn};
use crate::moment::Moment;
use crate::name::RenderedName;
use crate::once::{MarkEnd, Once};
use crate::opaque::boxed;
use crate::options::Options;
use crate::queue::{Holder, Period, SetNames};
use crate::store::AdmissionClass;
use crate::{LockError, trace};

/// Among which requests the first one of a waiting call is admitted.
const FIRST: Option<AdmissionClass> = Some(AdmissionClass::First);

/// One call that acquires a lock.
pub(crate) struct Acquire<'a> {
    pub(super) call: Call<'a>,
    /// The names of the set whose first lock the call acquires, and the place of the one that stands for the set: the call takes
    /// over a hold of them all.
    set: Option<(SetNames, usize)>,
    /// Whether the lock is one of a set, which are acquired one by one.
    is_part: bool,
    /// The period that the call belongs to, if its work may succeed once in each period.
    period: CallPeriod,
    /// How long the call has waited behind others of this process before its first request.
    waited: OnceLock<Duration>,
}

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
type First = Box<(Claim, Option<Outcome>)>;

impl Search for Acquire<'_> {
    type Queues = Arc<Entry>;

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn join(&self) -> Arc<Entry> {
        self.call.engine.queues.join(self.name())
    }

    fn awaited<'s>(&'s self, entry: &'s Arc<Entry>) -> (&'s Arc<str>, &'s Arc<Entry>) {
        (self.name(), entry)
    }

    /// No request is sent if another caller in this process holds the lock or waits for it.
    async fn attempt(&self, entry: &Arc<Entry>, deadline: Instant) -> Result<Tried, LockError> {
        let turn = match entry.try_turn() {
            Some(turn) => turn,
            None => match self.call.turn_unless_busy(entry, self.set()).await? {
                Ok(turn) => turn,
                Err(holder) => return Ok(Err(BusyLock::new(self.name(), holder))),
            },
        };
        let tried = self.request_until_reply(entry, &turn, deadline).await?;
        Ok(tried
            .map(|hold| self.deliver(hold, entry, turn))
            .map_err(|holder| BusyLock::new(self.name(), holder)))
    }

    /// Sends a request at once if no other caller in this process holds the lock or waits for it. A longer wait runs in a
    /// future on the heap: it may cost an allocation, and the future of a call stays small.
    async fn search(&self, entry: Arc<Entry>, deadline: Option<Instant>) -> Result<Hold, LockError> {
        let (turn, first) = match entry.try_turn() {
            Some(turn) if turn.is_fresh() && yields_until(self.call.engine, self.name()).is_none() => {
                let mut claim = self.new_claim(FIRST, &entry);
                match self.first_outcome(&mut claim, deadline).await? {
                    Some(Outcome::Acquired(hold))
                        if !hold.lease().is_over()
                            && self.call.options.once.is_none()
                            && !self.call.is_refused() =>
                    {
                        return Ok(self.deliver(hold, &entry, turn));
                    }
                    outcome => (Some(turn), Some(Box::new((claim, outcome)))),
                }
            }
            turn => (turn, None),
        };
        boxed(self.wait_until_deadline(entry, turn, first, deadline)).await
    }

    async fn time_is_up(&self, entry: &Arc<Entry>, deadline: Option<Instant>) {
        if let Some(once @ Once::PerPeriod(_)) = self.call.options.once {
            // It is on the heap, because every waiter would have room for it, and few have periods.
            return boxed(self.deadline_or_period_end(entry, deadline, once)).await;
        }
        self.call.deadline(entry, deadline).await;
    }
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(
        engine: &'a Arc<Engine>,
        name: &'a RenderedName,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
    ) -> Self {
        Self::of(Call::new(engine, name, options, is_inside_hold))
    }

    /// The acquisition of one lock of a set; the call for the first one takes a hold of this whole set over.
    pub(super) fn of_part(call: Call<'a>, set: Option<(SetNames, usize)>) -> Self {
        Self {
            set,
            is_part: true,
            ..Self::of(call)
        }
    }

    fn of(call: Call<'a>) -> Self {
        Self {
            call,
            set: None,
            is_part: false,
            period: CallPeriod::default(),
            waited: OnceLock::new(),
        }
    }

    fn name(&self) -> &'a Arc<str> {
        self.call.name.text()
    }

    fn set(&self) -> Option<SetNames> {
        self.set.as_ref().map(|(names, _)| Arc::clone(names))
    }

    /// Sends requests until a reply says whether the lock is free.
    async fn request_until_reply(
        &self,
        entry: &Arc<Entry>,
        turn: &Turn,
        deadline: Instant,
    ) -> Result<Result<Hold, Holder>, LockError> {
        if let Some(hold) = self.take_over(turn).await {
            return Ok(Ok(hold));
        }
        let mut pacing = Pacing::new(self.call.engine, turn, self.call.begun);
        let (mut claim, mut late) = (self.new_claim(None, entry), None);
        loop {
            let outcome = match late.take() {
                Some(outcome) => outcome,
                None => claim.request(Some(deadline)).await,
            };
            match self.step(entry, &mut claim, &mut pacing, outcome).await? {
                Step::Acquired(hold) => return Ok(Ok(hold)),
                Step::Held(holder) => return Ok(Err(holder)),
                Step::Retry(pause) => {
                    late = late_outcome(pin!(claim.next_outcome()), pin!(sleep(pause))).await;
                }
            }
        }
    }

    /// The outcome of the first request; `None` if it cannot be sent at once or its reply is overdue.
    async fn first_outcome(
        &self,
        claim: &mut Claim,
        deadline: Option<Instant>,
    ) -> Result<Option<Outcome>, LockError> {
        let Some(overdue) = claim.try_send(deadline) else {
            return Ok(None);
        };
        if claim.has_reply() {
            return Ok(Some(claim.next_outcome().await));
        }
        tokio::select! {
            biased;
            outcome = tokio::time::timeout_at(overdue, claim.next_outcome()) => Ok(outcome.ok()),
            () = self.call.engine.until_refused(self.call.is_inside_hold) => Err(self.call.shut_down_error()),
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
        let result = self.bounded(&entry, deadline, waiting).await?;
        result.unwrap_or_else(|| Err(self.gave_up(&entry)))
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
            let turn = entry.turn_for(self.set()).await;
            self.waited.get_or_init(|| self.call.begun.elapsed());
            turn
        };
        if first.is_none()
            && let Some(hold) = self.take_over_or_yield(&turn).await
        {
            return Ok(self.deliver(hold, entry, turn));
        }
        let mut pacing = Pacing::new(self.call.engine, &turn, self.call.begun);
        if first.is_none() {
            pacing
                .wait_while_yielding(deadline, self.call.options.once.is_some())
                .await;
        }
        let (mut claim, mut outcome) =
            first.map_or_else(|| (self.new_claim(FIRST, entry), None), |first| *first);
        loop {
            // A request takes more room than a pause, so that it has room of its own only as long as it lasts.
            let step = Box::pin(self.next_step(entry, &mut claim, &mut pacing, outcome, deadline));
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
                    let pause =
                        pacing.after_held(claim.lock_id(), self.call.options.once.is_some(), remaining);
                    trace::waiting(self.name(), remaining, pause);
                    pause
                }
                Step::Retry(pause) => pause,
            };
            outcome = late_outcome(pin!(claim.next_outcome()), pin!(pacing.pause(pause))).await;
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
        lease.deliver(QueueSlot::Turn(turn), self.call.meter.as_ref());
        hold
    }

    /// Sends a request, unless there is an outcome already, and decides what the call does after it.
    async fn next_step(
        &self,
        entry: &Arc<Entry>,
        claim: &mut Claim,
        pacing: &mut Pacing<'_>,
        outcome: Option<Outcome>,
        deadline: Option<Instant>,
    ) -> Result<Step, LockError> {
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => claim.request(deadline).await,
        };
        self.step(entry, claim, pacing, outcome).await
    }

    /// Decides what the call does after the outcome of a request.
    async fn step(
        &self,
        entry: &Arc<Entry>,
        claim: &mut Claim,
        pacing: &mut Pacing<'_>,
        outcome: Outcome,
    ) -> Result<Step, LockError> {
        let outcome = match outcome.read(|hold| hold.lease().is_over()) {
            Outcome::Acquired(hold) if !self.call.is_refused() => Outcome::Acquired(self.in_period(hold)?),
            Outcome::Held(held) if !self.call.is_refused() => Outcome::Held(self.unless_done(held)?),
            other => other,
        };
        let (asking, name) = (&mut claim.asking, self.name());
        match self.call.next_after(entry, asking, name, outcome).await {
            Next::Deliver(hold) => Ok(Step::Acquired(hold)),
            Next::ClaimAnew => {
                *claim = claim.anew();
                Ok(Step::Retry(Duration::ZERO))
            }
            Next::Again => Ok(Step::Retry(Duration::ZERO)),
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
            Next::Stop => Err(self.call.shut_down_error()),
        }
    }

    /// The hold that was handed over with the turn. If there is none, other processes get a moment to acquire the lock
    /// when the hand-over budget of this process is used up.
    async fn take_over_or_yield(&self, turn: &Turn) -> Option<Hold> {
        let taken_over = self.take_over(turn).await;
        if taken_over.is_none() {
            let pause = turn.budget().take_yield(Moment::present());
            if let Some(pause) = pause {
                sleep(pause).await;
            }
        }
        taken_over
    }

    /// The hold that was handed over with the turn, if it is one that this call wants; otherwise it is released.
    async fn take_over(&self, turn: &Turn) -> Option<Hold> {
        let call = &self.call;
        let whole = |(names, first): &(SetNames, usize)| call.take_over(turn, names, *first);
        let whole_set = self.set.as_ref().and_then(whole);
        let taken_over = whole_set.or_else(|| call.take_over(turn, &[], 0));
        if taken_over.is_none() {
            release_handed_over(std::slice::from_ref(turn)).await;
        }
        taken_over
    }

    fn new_claim(&self, class: Option<AdmissionClass>, entry: &Arc<Entry>) -> Claim {
        let claim = Claim::of_lock(&self.call, class, entry);
        if self.is_part {
            claim.with_handovers()
        } else {
            claim
        }
    }
}

#[cfg(test)]
mod tests;

//! Getting one lock.

mod once;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::{Instant, sleep};

use super::call::{BusyLock, Call, Search, release_handed_over};
use super::claim::Claim;
use super::pacing::{Pacing, yields_until};
use super::period::CallPeriod;
use super::target::Target;
use super::{Next, Outcome, Tried};
use crate::engine::Engine;
use crate::few::Few;
use crate::lease::{Entry, Hold, Turn};
use crate::moment::Moment;
use crate::name::RenderedName;
use crate::once::Once;
use crate::opaque::boxed;
use crate::options::{OnBusy, Options};
use crate::protocol::Until;
use crate::queue::{Holder, Period, SetNames};
use crate::{LockError, trace};

/// One call that acquires a lock.
pub(crate) struct Acquire<'a> {
    pub(super) call: Call<'a>,
    /// The names of the set whose first lock the call acquires, and the place of the one that stands for the set: the call takes
    /// over a hold of them all.
    set: Option<(SetNames, usize)>,
    /// The lock alone, or as one of a set.
    target: Target,
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

/// What a call has when its search begins.
#[derive(Default)]
pub(crate) struct Begun {
    /// Present if no other caller in this process had it.
    turn: Option<Turn>,
    /// The first request, if it was sent at once, and its outcome if there is one. It is on the heap, so that the future of a
    /// waiting call stays small.
    first: Option<(Box<Claim>, Option<Box<Outcome>>)>,
}

impl Search for Acquire<'_> {
    type Queues = Arc<Entry>;
    type Begun = Begun;

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn join(&self) -> Arc<Entry> {
        self.call.engine.queues.join(self.name())
    }

    fn awaited<'s>(&'s self, entry: &'s Arc<Entry>) -> (&'s Arc<str>, &'s Arc<Entry>) {
        (self.name(), entry)
    }

    /// Sends a request at once if no other caller in this process holds the lock or waits for it.
    async fn begin(&self, entry: &Arc<Entry>) -> Result<Result<Hold, Begun>, LockError> {
        let call = &self.call;
        let is_free = |turn: &Turn| turn.is_fresh() && yields_until(call.engine, self.name()).is_none();
        let turn = match entry.try_turn() {
            Some(turn) if !call.is_try && is_free(&turn) => turn,
            turn => return Ok(Err(Begun { turn, first: None })),
        };
        let mut claim = self.new_claim(entry);
        Ok(match self.first_outcome(&mut claim).await? {
            Some(Outcome::Acquired(hold))
                if !hold.lease().is_over() && call.options.once.is_none() && !call.is_refused() =>
            {
                Ok(self.deliver(hold, entry, turn))
            }
            outcome => Err(Begun {
                turn: Some(turn),
                first: Some((Box::new(claim), outcome.map(Box::new))),
            }),
        })
    }

    /// Waits for the turn, and then sends requests until the lock is acquired. A single try sends none if another caller in this
    /// process holds the lock or waits for it.
    async fn search(&self, entry: &Arc<Entry>, Begun { turn, first }: Begun) -> Result<Tried, LockError> {
        let call = &self.call;
        let turn = match turn {
            Some(turn) => turn,
            // It is on the heap, because every waiter would have room for it.
            None if call.is_try => match boxed(call.turn_unless_busy(entry, self.set())).await? {
                Ok(turn) => turn,
                Err(holder) => return Ok(Err(BusyLock::new(self.name(), holder))),
            },
            None => {
                let turn = entry.turn_for(self.set()).await;
                self.waited.get_or_init(|| call.begun.elapsed());
                turn
            }
        };
        if first.is_none()
            && let Some(hold) = self.take_over(&turn).await
        {
            return Ok(Ok(self.deliver(hold, entry, turn)));
        }
        let mut pacing = Pacing::new(call, &turn);
        if first.is_none() && !call.is_try {
            let pause = turn.budget().take_yield(Moment::present());
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            pacing.wait_while_yielding().await;
        }
        let (mut claim, outcome) = first.unwrap_or_else(|| (Box::new(self.new_claim(entry)), None));
        let mut outcome = match outcome {
            Some(outcome) => *outcome,
            None => claim.request().await,
        };
        loop {
            // It takes more room than a pause, and does not last long.
            let step = Box::pin(self.step(entry, &mut claim, &mut pacing, outcome));
            let pause = match step.await? {
                Step::Acquired(hold) => {
                    // The turn goes with the lease. A late reply to a query of the notifier must not replace the holder that
                    // is noted now.
                    drop(pacing);
                    return Ok(Ok(self.deliver(hold, entry, turn)));
                }
                Step::Held(holder) if call.is_try => return Ok(Err(BusyLock::new(self.name(), holder))),
                Step::Held(holder) => {
                    turn.budget().shrink();
                    let remaining = holder.remaining(Instant::now());
                    let pause = pacing.after_held(claim.lock_id(), remaining);
                    trace::waiting(self.name(), remaining, pause);
                    pause
                }
                Step::Retry(pause) => pause,
            };
            outcome = claim.outcome_after(pin!(pacing.pause(pause))).await;
        }
    }

    async fn time_is_up(&self, entry: &Arc<Entry>) {
        if let Some(once @ Once::PerPeriod(_)) = self.call.options.once {
            // It is on the heap, because every waiter would have room for it, and few have periods.
            return boxed(self.time_or_period_is_up(entry, once)).await;
        }
        self.call.time_is_up(entry).await;
    }
}

impl<'a> Acquire<'a> {
    pub(crate) fn one(
        engine: &'a Arc<Engine>,
        name: &'a RenderedName,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Self {
        Self::of(Call::new(engine, name, options, is_inside_hold, on_busy))
    }

    /// The acquisition of one lock of a set; the call for the first one takes a hold of this whole set over.
    pub(super) fn of_part(call: Call<'a>, set: Option<(SetNames, usize)>) -> Self {
        Self {
            set,
            target: Target::Part,
            ..Self::of(call)
        }
    }

    fn of(call: Call<'a>) -> Self {
        Self {
            call,
            set: None,
            target: Target::Lock,
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

    /// The outcome of the first request; `None` if it cannot be sent at once or its reply is overdue.
    async fn first_outcome(&self, claim: &mut Claim) -> Result<Option<Outcome>, LockError> {
        let Some(overdue) = claim.try_send() else {
            return Ok(None);
        };
        tokio::select! {
            biased;
            outcome = tokio::time::timeout_at(overdue, claim.next_outcome()) => Ok(outcome.ok()),
            () = self.call.engine.until_refused(self.call.is_inside_hold) => Err(self.call.shut_down_error()),
        }
    }

    /// Delivers the hold to the caller: the turn goes with the lease, and the waiters behind wait for its holder.
    fn deliver(&self, hold: Hold, entry: &Entry, turn: Turn) -> Hold {
        let lease = hold.lease();
        let period = lease.once.and_then(|once| match once.mark_end {
            Until::At(end) => {
                let left = end.saturating_sub(once.acquired_at.timestamp_millis());
                let ends = Instant::now() + Duration::from_millis(u64::try_from(left).unwrap_or_default());
                let end = DateTime::from_millis(end);
                Some(Period { end, ends })
            }
            Until::After(_) => None,
        });
        let holder = Holder::local(&lease.key().lock_id, lease.acquired);
        entry.front().set_held(holder.in_period(period));
        hold.deliver([turn], self.call.meter.as_ref());
        hold
    }

    /// Decides what the call does after the outcome of a request.
    async fn step(
        &self,
        entry: &Arc<Entry>,
        claim: &mut Claim,
        pacing: &mut Pacing<'_>,
        outcome: Outcome,
    ) -> Result<Step, LockError> {
        let outcome = match outcome {
            other if self.call.is_refused() => other,
            Outcome::Acquired(hold) if !hold.lease().is_over() => Outcome::Acquired(self.in_period(hold)?),
            Outcome::Held(held) => Outcome::Held(self.unless_done(held)?),
            other => other,
        };
        match self.call.next_after(entry, claim, outcome).await {
            Next::Deliver(hold) => Ok(Step::Acquired(hold)),
            Next::ClaimAnew => {
                *claim = claim.anew(&self.call);
                Ok(Step::Retry(Duration::ZERO))
            }
            Next::Again => Ok(Step::Retry(Duration::ZERO)),
            Next::Held(held) => {
                entry.front().set_holder(held.holder.clone());
                Ok(Step::Held(held.holder))
            }
            Next::Pause(error) | Next::Leave(error) => {
                let pause = pacing.after_error(error.as_ref());
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

    fn new_claim(&self, entry: &Arc<Entry>) -> Claim {
        let entries = Few::one(Arc::clone(entry));
        Claim::new(&self.call, self.call.first_class(), self.target.clone(), entries)
    }
}

#[cfg(test)]
mod tests;

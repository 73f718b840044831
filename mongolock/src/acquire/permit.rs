//! Getting a permit of a semaphore.
//!
//! A claim names one permit, so it is repeated like that of a lock: with the same id after a lost reply. (A command for
//! "any free permit" would take a second one then.) The first permit of a call is drawn at random; if it is held, a query
//! over all permits shows which are free. The caller's turn in this process lasts until it has its permit, and not until
//! it releases it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::asking::ends_call;
use super::call::{BusyLock, Call, Search};
use super::claim::Claim;
use super::pacing::Pacing;
use super::query;
use super::target::Target;
use super::{Next, Tried};
use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::few::Few;
use crate::lease::{Entry, Hold, Turn};
use crate::moment::Luck;
use crate::name::RenderedName;
use crate::options::{OnBusy, Options};
use crate::queue::Holder;
use crate::store::{AdmissionClass, HeldPermits};
use crate::timing::{LOOK_LIMIT, PERMIT_LIMIT};
use crate::{LockError, permit_id, protocol, trace};

/// The number of claims after which a call pauses, because others were faster each time.
const CLAIMS: u32 = 3;

/// One call that acquires a permit.
pub(crate) struct AcquirePermit<'a> {
    call: Call<'a>,
    /// What stands for all permits in the queues and lines.
    group: Arc<str>,
    permits: u32,
}

/// The claims of one call, and its queries.
struct Claims<'s> {
    search: &'s AcquirePermit<'s>,
    entry: &'s Arc<Entry>,
    backoff: Backoff,
    /// The permit of the first claim, until it is sent.
    drawn: Option<u32>,
    /// The permits whose documents were found blocked: they look free and cannot be acquired.
    blocked: Vec<u32>,
    /// Among which requests the next claim is admitted.
    class: AdmissionClass,
}

/// How some claims ended.
enum Claimed {
    Acquired(Hold),
    /// A query has found all permits held; this is the holder of the one that ends first.
    Full(Holder),
    /// Others have acquired each permit that was free.
    Overtaken,
}

/// What a query has found.
enum Found {
    /// This permit looks free.
    Free(u32),
    Full(Holder),
}

impl Search for AcquirePermit<'_> {
    type Queues = Arc<Entry>;
    type Begun = ();

    /// What other calls have found does not say that all permits were held during this one.
    const IS_BUSY_WHILE_HELD: bool = false;

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn join(&self) -> Arc<Entry> {
        self.call.engine.queues.join(&self.group)
    }

    fn awaited<'s>(&'s self, entry: &'s Arc<Entry>) -> (&'s Arc<str>, &'s Arc<Entry>) {
        (self.name(), entry)
    }

    /// Waits for the turn in this process, and then for a permit. A single try ends when a query has found all permits held.
    async fn search(&self, entry: &Arc<Entry>, (): ()) -> Result<Tried, LockError> {
        let call = &self.call;
        let mut claims = Claims {
            search: self,
            entry,
            backoff: call.engine.backoff(),
            drawn: None,
            blocked: Vec::new(),
            class: call.first_class(),
        };
        let turn = if call.is_try {
            match claims.turn_unless_full().await? {
                Ok(turn) => turn,
                Err(holder) => return Ok(Err(BusyLock::new(self.name(), holder))),
            }
        } else {
            entry.turn().await
        };
        let mut pacing = Pacing::new(call, &turn).of_semaphore(self.permits);
        if !call.is_try {
            pacing.wait_while_yielding().await;
        }
        claims.drawn = Some(fastrand::u32(0..self.permits));
        // It stands for the call where others compare claims; each claim has an id of its own.
        let call_id = call
            .engine
            .mark
            .new_lock_id(&call.engine.owner, protocol::Kind::Permit);
        loop {
            let pause = match claims.some().await? {
                Claimed::Acquired(hold) => {
                    // The turn passes on, because other permits may be free.
                    hold.deliver(None, call.meter.as_ref());
                    return Ok(Ok(hold));
                }
                Claimed::Full(holder) if call.is_try => return Ok(Err(BusyLock::new(self.name(), holder))),
                Claimed::Full(holder) => {
                    claims.class = AdmissionClass::Woken;
                    let remaining = holder.remaining(Instant::now());
                    let pause = pacing.after_held(&call_id, remaining);
                    trace::waiting(self.name(), remaining, pause);
                    pause
                }
                // The releases that these claims were for are over: no event would end a wait.
                Claimed::Overtaken => pacing.after_error(None),
            };
            self.pause(entry, &mut pacing, pause).await;
        }
    }
}

impl<'a> AcquirePermit<'a> {
    pub(crate) fn permit(
        engine: &'a Arc<Engine>,
        name: &'a RenderedName,
        permits: u32,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Self {
        Self {
            call: Call::new(engine, name, options, is_inside_hold, on_busy),
            group: permit_id::group(name.text()),
            permits,
        }
    }

    fn name(&self) -> &'a Arc<str> {
        self.call.name.text()
    }

    /// The number of permits that are free at present.
    pub(crate) async fn available(&self) -> Result<u32, LockError> {
        self.call.engine.ensure_running();
        let entry = self.join();
        let held = self.held_permits(&entry).await?;
        let held = held.keys().filter(|number| **number < self.permits).count();
        Ok(self.permits - u32::try_from(held).unwrap_or(self.permits))
    }

    /// Pauses until it is time for the next query. No stream need report a release of this process.
    async fn pause(&self, entry: &Entry, pacing: &mut Pacing<'_>, longest: Duration) {
        let mut pausing = pin!(pacing.pause(longest));
        loop {
            tokio::select! {
                biased;
                () = &mut pausing => return,
                () = entry.freed() => if self.call.engine.notifier.released_here(&self.group) {
                    return;
                },
            }
        }
    }

    /// One of the permits that look free. A permit whose claim this process has given up is as good as free, and comes first:
    /// the next claim releases it, and nobody has it until then.
    fn choose(&self, held: &HeldPermits, blocked: &[u32]) -> Found {
        if let Some(most) = held.keys().max().filter(|most| **most >= self.permits)
            && self.call.engine.is_first_warning(&self.group)
        {
            trace::permits_differ(self.name(), self.permits, most + 1);
        }
        let is_given_up = |number: &u32| {
            let holder = held.get(number).and_then(|lease| lease.holder.as_ref());
            holder.is_some_and(|id| self.call.frees(id))
        };
        let (given_up, others): (Vec<u32>, Vec<u32>) = (0..self.permits).partition(is_given_up);
        let free = others.into_iter().filter(|number| !held.contains_key(number));
        let free: Vec<u32> = free.collect();
        let usable = |numbers: &[u32]| {
            let usable = numbers.iter().filter(|number| !blocked.contains(number));
            fastrand::choice(usable.copied().collect::<Vec<u32>>())
        };
        let chosen = usable(&given_up)
            .or_else(|| usable(&free))
            .or_else(|| fastrand::choice(given_up.into_iter().chain(free).collect::<Vec<u32>>()));
        if let Some(number) = chosen {
            return Found::Free(number);
        }
        let own = held.iter().filter(|(number, _)| **number < self.permits);
        let first = own.map(|(_, lease)| lease).min_by_key(|lease| lease.remaining);
        Found::Full(first.map_or_else(Holder::default, |lease| Holder::of_lease(Instant::now(), lease)))
    }

    /// The permits that are held.
    async fn held_permits(&self, entry: &Arc<Entry>) -> Result<HeldPermits, LockError> {
        let (store, name) = (Arc::clone(&self.call.engine.store), Arc::clone(self.name()));
        let (permits, margin) = (self.permits, self.call.engine.config.options.takeover_margin);
        let looking = || async move { store.held_permits(&name, permits, margin, LOOK_LIMIT).await };
        query::start(&self.call.engine.store, entry, looking).await
    }
}

impl Claims<'_> {
    /// The turn of a try, which comes after those of the callers that wait in this process already. That it is not free says
    /// nothing about the permits: only a query that finds all of them held ends the try.
    async fn turn_unless_full(&mut self) -> Result<Result<Turn, Holder>, LockError> {
        if let Some(turn) = self.entry.try_turn() {
            return Ok(Ok(turn));
        }
        let mut turn = pin!(self.entry.turn());
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => return Ok(Ok(turn)),
                found = self.look() => if let Found::Full(holder) = found? {
                    return Ok(Err(holder));
                },
            }
            // A caller before this one is about to claim what is free.
            if let Ok(turn) = timeout(self.backoff.next(Luck::draw()), &mut turn).await {
                return Ok(Ok(turn));
            }
        }
    }

    /// At most [`CLAIMS`] claims, each of a permit that looks free; the first one of the drawn permit.
    async fn some(&mut self) -> Result<Claimed, LockError> {
        for _ in 0..CLAIMS {
            let number = match self.drawn.take() {
                Some(number) => number,
                None => match self.look().await? {
                    Found::Free(number) => number,
                    Found::Full(holder) => return Ok(Claimed::Full(holder)),
                },
            };
            if let Some(hold) = self.claim(number).await? {
                return Ok(Claimed::Acquired(hold));
            }
        }
        // A last look: a try says that no permit is free only if a query has found that.
        match self.look().await? {
            Found::Full(holder) => Ok(Claimed::Full(holder)),
            Found::Free(_) => Ok(Claimed::Overtaken),
        }
    }

    /// Claims one permit; `None` if another holder has it, or if a foreign transaction blocks its document: other permits may
    /// be free, and the claim is released. After another unclear outcome the same permit is claimed with the same
    /// id.
    async fn claim(&mut self, number: u32) -> Result<Option<Hold>, LockError> {
        let (call, entry) = (&self.search.call, self.entry);
        let semaphore = call.name.text();
        let target = Target::Permit(permit_id::new(semaphore, number));
        let mut claim = Claim::new(call, self.class, target, Few::one(Arc::clone(entry)));
        // A slow server gets more time from the second request on.
        let long_enough = Instant::now() + PERMIT_LIMIT * 4;
        let has_time = call.deadline.is_none_or(|deadline| deadline > long_enough);
        if self.search.permits > 1 && has_time && self.blocked.is_empty() {
            claim.asking.limit_shortly();
        }
        let mut outcome = claim.request().await;
        loop {
            outcome = match call.next_after(entry, &mut claim, outcome).await {
                Next::Deliver(hold) => {
                    entry.front().forget_failure();
                    return Ok(Some(hold));
                }
                Next::ClaimAnew => {
                    claim = claim.anew(call);
                    claim.request().await
                }
                Next::Again => claim.request().await,
                Next::Held(held) => {
                    entry.front().set_holder(held.holder);
                    return Ok(None);
                }
                Next::Leave(error) => {
                    if error.is_some() {
                        self.failed(error);
                    }
                    self.blocked.push(number);
                    return Ok(None);
                }
                Next::Pause(error) => {
                    let pause = self.failed(error);
                    claim.outcome_after(pin!(sleep(pause))).await
                }
                Next::End(error) => return Err(error),
                Next::Stop => return Err(call.shut_down_error()),
            }
        }
    }

    /// Looks at all permits until there is a reply, and returns one that looks free.
    async fn look(&mut self) -> Result<Found, LockError> {
        loop {
            match self.search.held_permits(self.entry).await {
                Ok(held) => {
                    let found = self.search.choose(&held, &self.blocked);
                    if let Found::Full(holder) = &found {
                        self.entry.front().set_holder(holder.clone());
                    }
                    return Ok(found);
                }
                Err(error)
                    if ends_call(
                        &error,
                        self.search.call.is_try,
                        self.search.call.refused_for(self.entry),
                    ) =>
                {
                    return Err(error);
                }
                Err(error) => sleep(self.failed(Some(error))).await,
            }
        }
    }

    /// Notes a request that has failed, and returns the pause before the next one.
    fn failed(&mut self, error: Option<LockError>) -> Duration {
        let pause = self.backoff.next(Luck::draw());
        if let Some(error) = error {
            trace::retrying(self.search.name(), &error, pause);
            self.entry.front().set_failed(error);
        }
        pause
    }
}

#[cfg(test)]
mod tests;

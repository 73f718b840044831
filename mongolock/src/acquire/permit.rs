//! Getting a permit of a semaphore.
//!
//! A claim names one permit, so it is repeated like that of a lock: with the same id after a lost reply. (A command for
//! "any free permit" would take a second one then.) The first permit of a call is drawn at random; if it is held, a query
//! over all permits shows which are free. The caller's turn in this process lasts until it has its permit, and not until
//! it releases it.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::asking::ends_call;
use super::call::{BusyLock, Call, Search};
use super::claim::{Claim, late_outcome};
use super::pacing::Pacing;
use super::query;
use super::{Next, Tried};
use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::lease::{Entry, Hold, Turn};
use crate::moment::Luck;
use crate::name::RenderedName;
use crate::opaque::boxed;
use crate::options::Options;
use crate::queue::Holder;
use crate::store::{AdmissionClass, HeldPermits};
use crate::sync::lock;
use crate::timing::{LOOK_LIMIT, PERMIT_LIMIT};
use crate::{LockError, permit_id, trace};

/// The number of claims after which a call pauses, because others were faster each time.
const CLAIMS: u32 = 3;

/// One call that acquires a permit.
pub(crate) struct AcquirePermit<'a> {
    call: Call<'a>,
    /// What stands for all permits in the queues and lines.
    group: Arc<str>,
    permits: u32,
    /// The permits whose documents were found blocked: they look free and cannot be acquired.
    blocked: Mutex<Vec<u32>>,
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

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn join(&self) -> Arc<Entry> {
        self.call.engine.queues.join(&self.group)
    }

    fn awaited<'s>(&'s self, entry: &'s Arc<Entry>) -> (&'s Arc<str>, &'s Arc<Entry>) {
        (self.name(), entry)
    }

    /// It ends when a query has found all permits held.
    async fn attempt(&self, entry: &Arc<Entry>, deadline: Instant) -> Result<Tried, LockError> {
        let mut backoff = self.call.engine.backoff();
        let _turn = match self.turn_unless_full(entry, &mut backoff).await? {
            Ok(turn) => turn,
            Err(holder) => return Ok(Err(BusyLock::new(self.name(), holder))),
        };
        let mut drawn = Some(self.draw());
        loop {
            let claims = self.claims(entry, &mut backoff, Some(deadline), drawn.take(), None);
            match claims.await? {
                Claimed::Acquired(hold) => return Ok(Ok(self.deliver(hold))),
                Claimed::Full(holder) => return Ok(Err(BusyLock::new(self.name(), holder))),
                Claimed::Overtaken => sleep(backoff.next(Luck::draw())).await,
            }
        }
    }

    /// What other calls have found does not say that all permits were held during this one.
    fn held_by(&self, name: &Arc<str>, holder: Holder) -> Result<Tried, LockError> {
        Err(self.call.timeout_error(name, &holder))
    }

    async fn search(&self, entry: Arc<Entry>, deadline: Option<Instant>) -> Result<Hold, LockError> {
        let waiting = boxed(self.wait_for_permit(&entry, deadline));
        let result = self.bounded(&entry, deadline, waiting).await?;
        result.unwrap_or_else(|| Err(self.gave_up(&entry)))
    }
}

impl<'a> AcquirePermit<'a> {
    pub(crate) fn new(
        engine: &'a Arc<Engine>,
        name: &'a RenderedName,
        permits: u32,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
    ) -> Self {
        Self {
            call: Call::new(engine, name, options, is_inside_hold),
            group: permit_id::group(name.text()),
            permits,
            blocked: Mutex::default(),
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

    /// The turn of a try, which comes after those of the callers that wait in this process already. That it is not free says
    /// nothing about the permits: only a query that finds all of them held ends the try.
    async fn turn_unless_full(
        &self,
        entry: &Arc<Entry>,
        backoff: &mut Backoff,
    ) -> Result<Result<Turn, Holder>, LockError> {
        if let Some(turn) = entry.try_turn() {
            return Ok(Ok(turn));
        }
        let mut turn = pin!(entry.turn());
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => return Ok(Ok(turn)),
                found = self.look(entry, backoff, None) => if let Found::Full(holder) = found? {
                    return Ok(Err(holder));
                },
            }
            // A caller before this one is about to claim what is free.
            if let Ok(turn) = timeout(backoff.next(Luck::draw()), &mut turn).await {
                return Ok(Ok(turn));
            }
        }
    }

    /// Waits for the turn in this process, and then for a permit.
    async fn wait_for_permit(
        &self,
        entry: &Arc<Entry>,
        deadline: Option<Instant>,
    ) -> Result<Hold, LockError> {
        let turn = entry.turn().await;
        let (mut pacing, mut backoff) = (self.pacing(&turn), self.call.engine.backoff());
        pacing.wait_while_yielding(deadline, false).await;
        let mut drawn = Some(self.draw());
        // It stands for the call where others compare claims; each claim has an id of its own.
        let call_id = self.call.engine.mark.new_lock_id(&self.call.engine.owner);
        let mut class = AdmissionClass::First;
        loop {
            let claims = self.claims(entry, &mut backoff, deadline, drawn.take(), Some(class));
            let pause = match claims.await? {
                Claimed::Acquired(hold) => return Ok(self.deliver(hold)),
                Claimed::Full(holder) => {
                    class = AdmissionClass::Woken;
                    let remaining = holder.remaining(Instant::now());
                    let pause = pacing.after_held(&call_id, false, remaining);
                    trace::waiting(self.name(), remaining, pause);
                    pause
                }
                // The releases that these claims were for are over: no event would end a wait.
                Claimed::Overtaken => pacing.after_error(),
            };
            self.pause(entry, &mut pacing, pause).await;
        }
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

    /// At most [`CLAIMS`] claims, each of a permit that looks free; the first one of a drawn permit if there is one. `class`
    /// says among which requests they are admitted; `None` for a single try.
    async fn claims(
        &self,
        entry: &Arc<Entry>,
        backoff: &mut Backoff,
        deadline: Option<Instant>,
        mut drawn: Option<u32>,
        class: Option<AdmissionClass>,
    ) -> Result<Claimed, LockError> {
        for _ in 0..CLAIMS {
            let number = match drawn.take() {
                Some(number) => number,
                None => match self.look(entry, backoff, class).await? {
                    Found::Free(number) => number,
                    Found::Full(holder) => return Ok(Claimed::Full(holder)),
                },
            };
            if let Some(hold) = self.claim(entry, backoff, deadline, number, class).await? {
                return Ok(Claimed::Acquired(hold));
            }
        }
        // A last look: a try says that no permit is free only if a query has found that.
        match self.look(entry, backoff, class).await? {
            Found::Full(holder) => Ok(Claimed::Full(holder)),
            Found::Free(_) => Ok(Claimed::Overtaken),
        }
    }

    /// Claims one permit; `None` if another holder has it, or if a foreign transaction blocks its document: other permits may
    /// be free, and the claim is released. After another unclear outcome the same permit is claimed with the same
    /// id.
    async fn claim(
        &self,
        entry: &Arc<Entry>,
        backoff: &mut Backoff,
        deadline: Option<Instant>,
        number: u32,
        class: Option<AdmissionClass>,
    ) -> Result<Option<Hold>, LockError> {
        let id = permit_id::new(self.name(), number);
        let mut claim = Claim::of_permit(&self.call, class, &id, entry);
        // A slow server gets more time from the second request on.
        let has_time = deadline.is_none_or(|deadline| deadline > Instant::now() + PERMIT_LIMIT * 4);
        if self.permits > 1 && has_time && lock(&self.blocked).is_empty() {
            claim.asking.limit_shortly();
        }
        let mut late = None;
        loop {
            let outcome = match late.take() {
                Some(outcome) => outcome,
                None => claim.request(deadline).await,
            };
            let outcome = outcome.read(|hold| hold.lease().is_over());
            match self.call.next_after(entry, &mut claim.asking, &id, outcome).await {
                Next::Deliver(hold) => {
                    entry.front().forget_failure();
                    return Ok(Some(hold));
                }
                Next::ClaimAnew => claim = claim.anew(),
                Next::Again => {}
                Next::Held(held) => {
                    entry.front().set_holder(held.holder);
                    return Ok(None);
                }
                Next::Leave(error) => {
                    if error.is_some() {
                        self.failed(entry, backoff, error);
                    }
                    lock(&self.blocked).push(number);
                    return Ok(None);
                }
                Next::Pause(error) => {
                    let pause = self.failed(entry, backoff, error);
                    late = late_outcome(pin!(claim.next_outcome()), pin!(sleep(pause))).await;
                }
                Next::End(error) => return Err(error),
                Next::Stop => return Err(self.call.shut_down_error()),
            }
        }
    }

    /// Looks at all permits until there is a reply, and returns one that looks free.
    async fn look(
        &self,
        entry: &Arc<Entry>,
        backoff: &mut Backoff,
        class: Option<AdmissionClass>,
    ) -> Result<Found, LockError> {
        loop {
            match self.held_permits(entry).await {
                Ok(held) => {
                    let found = self.choose(&held);
                    if let Found::Full(holder) = &found {
                        entry.front().set_holder(holder.clone());
                    }
                    return Ok(found);
                }
                Err(error) if ends_call(&error, class.is_none()) => return Err(error),
                Err(error) => sleep(self.failed(entry, backoff, Some(error))).await,
            }
        }
    }

    /// One of the permits that look free. A permit whose claim this process has given up is as good as free, and comes first:
    /// the next claim releases it, and nobody has it until then.
    fn choose(&self, held: &HeldPermits) -> Found {
        if let Some(most) = held.keys().max().filter(|most| **most >= self.permits)
            && self.call.engine.is_first_warning(&self.group)
        {
            trace::permits_differ(self.name(), self.permits, most + 1);
        }
        let is_given_up = |number: &u32| {
            let holder = held.get(number).and_then(|lease| lease.holder.as_ref());
            holder.is_some_and(|id| self.call.given_up(id).is_some())
        };
        let (given_up, others): (Vec<u32>, Vec<u32>) = (0..self.permits).partition(is_given_up);
        let free = others.into_iter().filter(|number| !held.contains_key(number));
        let free: Vec<u32> = free.collect();
        let usable = |numbers: &[u32]| {
            let blocked = lock(&self.blocked);
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

    /// Notes a request that has failed, and returns the pause before the next one.
    fn failed(&self, entry: &Arc<Entry>, backoff: &mut Backoff, error: Option<LockError>) -> Duration {
        let pause = backoff.next(Luck::draw());
        if let Some(error) = error {
            trace::retrying(self.name(), &error, pause);
            entry.front().set_failed(error);
        }
        pause
    }

    fn draw(&self) -> u32 {
        fastrand::u32(0..self.permits)
    }

    fn pacing<'b>(&'b self, turn: &'b Turn) -> Pacing<'b> {
        Pacing::new(self.call.engine, turn, self.call.begun).of_semaphore(self.permits)
    }

    /// Delivers the hold to the caller. The turn passes on, because other permits may be free.
    fn deliver(&self, hold: Hold) -> Hold {
        hold.lease().deliver(None, self.call.meter.as_ref());
        hold
    }
}

#[cfg(test)]
mod tests;

//! Getting several locks, all or nothing.
//!
//! A call claims all names with one request. If one of them is held, it gives the others back, waits for that one alone
//! while it holds nothing, and claims all of them again. After three rounds it acquires them one by one, in the order of
//! their names, which ends in any case: a round can fail again and again where others use single names all the time. The
//! same holds for the turns of this process, which a round needs all at once.

mod round;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span};

use super::pacing::Pacing;
use super::period::CallPeriod;
use super::query;
use super::{Acquire, Waiting};
use crate::engine::Engine;
use crate::lease::{Entry, Hold, Turn};
use crate::meter::LockMeter;
use crate::name::RenderedName;
use crate::opaque::boxed;
use crate::options::Options;
use crate::queue::{AdmissionClass, FrontStatus, Holder};
use crate::store::driver_error;
use crate::timing::LOOK_LIMIT;
use crate::{LockError, task, trace};
use round::{Round, RoundOutcome};

/// The number of rounds after which the locks are acquired one by one.
const ROUNDS: u32 = 3;

/// The number of waits for a missing turn of this process after which the locks are acquired one by one.
const TURNS: u32 = 5;

/// The pause between two checks for which name a call waits, while it waits for a reply without a limit.
const BUSY_CHECK: Duration = Duration::from_secs(1);

/// One call that acquires several locks.
pub(crate) struct AcquireSeveral<'a> {
    engine: &'a Arc<Engine>,
    /// The names in their order, each once.
    names: &'a [RenderedName],
    /// The place of the name that stands for the set in errors and events.
    first: usize,
    options: &'a Arc<Options>,
    /// Whether the caller runs under another lock of this provider, which it keeps until it gets these.
    is_inside_hold: bool,
    meter: LockMeter,
    /// The time at which the call began.
    begun: Instant,
    /// The place of the name that the call waits for: it decides the error of a call that reaches its limit.
    awaited: AtomicUsize,
}

/// A lock of the set that is held.
pub(crate) struct BusyLock {
    pub(crate) name: Arc<str>,
    pub(crate) holder: Holder,
}

/// What the call does after a round.
enum Step {
    Acquired(Hold),
    /// This lock is held by another holder.
    Busy {
        index: usize,
        lock_id: Arc<str>,
        holder: Holder,
    },
    /// Another round follows after this pause, which does not count among the [`ROUNDS`].
    Again(Duration),
}

impl<'a> AcquireSeveral<'a> {
    pub(crate) fn new(
        engine: &'a Arc<Engine>,
        names: &'a [RenderedName],
        first: usize,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
    ) -> Self {
        Self {
            engine,
            names,
            first,
            options,
            is_inside_hold,
            meter: engine.meter.of(names[first].template()),
            begun: Instant::now(),
            awaited: AtomicUsize::new(first),
        }
    }

    /// Waits for all locks until the acquire timeout.
    pub(crate) async fn wait(&self) -> Result<Hold, LockError> {
        let (waiting, span) = (self.waiting(), self.span());
        let outcome = match self.options.acquire_timeout {
            // A call with a timeout of zero still makes one attempt.
            Some(Duration::ZERO) => self.attempt_once().instrument(span.clone()).await,
            limit => {
                let deadline = limit.map(|limit| self.begun + limit);
                self.wait_until_deadline(deadline)
                    .instrument(span.clone())
                    .await
                    .map(Ok)
            }
        };
        waiting.end(&span, &outcome);
        outcome?.map_err(|busy| busy.holder.timeout_error(&busy.name, self.begun.elapsed()))
    }

    /// Tries to acquire all locks, or returns the first one that is held.
    pub(crate) async fn try_once(&self) -> Result<Result<Hold, BusyLock>, LockError> {
        let (waiting, span) = (self.waiting(), self.span());
        let outcome = self.attempt_once().instrument(span.clone()).await;
        waiting.end(&span, &outcome);
        outcome
    }

    fn span(&self) -> Span {
        trace::acquire_set_span(self.names, self.first, &self.engine.owner)
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting::begin(self.engine, Some(&self.meter), self.begun)
    }

    /// The queues of all names.
    fn join(&self) -> Vec<Arc<Entry>> {
        self.names
            .iter()
            .map(|name| self.engine.queues.join(name.text()))
            .collect()
    }

    /// The call as one for a single lock of the set.
    fn single(&self, index: usize) -> Acquire<'_> {
        self.part(index, self.options, self.begun)
    }

    /// The acquisition of one of the locks, which does not count as a call of its own.
    fn part<'b>(&'b self, index: usize, options: &'b Arc<Options>, begun: Instant) -> Acquire<'b> {
        Acquire {
            engine: self.engine,
            name: &self.names[index],
            options,
            is_inside_hold: self.is_inside_hold,
            meter: None,
            begun,
            period: CallPeriod::default(),
            waited: OnceLock::new(),
        }
    }

    async fn attempt_once(&self) -> Result<Result<Hold, BusyLock>, LockError> {
        self.single(self.first).ensure_open()?;
        let entries = self.join();
        let deadline = self.begun + self.options.attempt_limit();
        let attempting = boxed(self.round_until_reply(&entries, deadline));
        if let Some(result) = self.bounded(&entries, Some(deadline), attempting).await? {
            return result;
        }
        let index = self.awaited.load(Relaxed);
        match entries[index].front().status() {
            FrontStatus::Held(holder) => Ok(Err(self.busy(index, holder))),
            status => Err(self.single(index).gave_up_error(&entries[index], status)),
        }
    }

    /// One round, which is repeated until replies say whether the locks are free.
    async fn round_until_reply(
        &self,
        entries: &[Arc<Entry>],
        deadline: Instant,
    ) -> Result<Result<Hold, BusyLock>, LockError> {
        let mut kept = None;
        loop {
            let turns = match try_turns(entries, kept.take()) {
                Ok(turns) => turns,
                Err(index) => {
                    self.awaited.store(index, Relaxed);
                    match self.single(index).turn_unless_busy(&entries[index]).await? {
                        Ok(turn) => kept = Some((index, turn)),
                        Err(holder) => return Ok(Err(self.busy(index, holder))),
                    }
                    continue;
                }
            };
            release_handed_over(&turns).await;
            let mut turns: Vec<Option<Turn>> = turns.into_iter().map(Some).collect();
            let mut pacing = self.pacing(entries, 0);
            match self
                .round(entries, &mut turns, &mut pacing, Some(deadline), None)
                .await?
            {
                Step::Acquired(hold) => return Ok(Ok(self.deliver(hold, entries, turns))),
                Step::Busy { index, holder, .. } => return Ok(Err(self.busy(index, holder))),
                Step::Again(pause) => {
                    drop((turns, pacing));
                    sleep(pause).await;
                }
            }
        }
    }

    async fn wait_until_deadline(&self, deadline: Option<Instant>) -> Result<Hold, LockError> {
        self.single(self.first).ensure_open()?;
        let entries = self.join();
        let waiting = boxed(self.wait_for_locks(&entries, deadline));
        if let Some(result) = self.bounded(&entries, deadline, waiting).await? {
            return result;
        }
        let index = self.awaited.load(Relaxed);
        let entry = &entries[index];
        Err(self.single(index).gave_up_error(entry, entry.front().status()))
    }

    async fn wait_for_locks(
        &self,
        entries: &[Arc<Entry>],
        deadline: Option<Instant>,
    ) -> Result<Hold, LockError> {
        loop {
            if let Some(hold) = self.some_rounds(entries, deadline).await? {
                return Ok(hold);
            }
            if let Some(hold) = self.one_by_one(deadline).await? {
                return Ok(hold);
            }
        }
    }

    /// Makes [`ROUNDS`] rounds; `None` if a lock was held in each of them, or if the turns for one never came together.
    async fn some_rounds(
        &self,
        entries: &[Arc<Entry>],
        deadline: Option<Instant>,
    ) -> Result<Option<Hold>, LockError> {
        let mut kept: Option<(usize, Turn)> = None;
        // The pauses belong to the name that the call waits for.
        let mut pacing: Option<(usize, Pacing<'_>)> = None;
        let (mut rounds, mut has_left_place, mut class) = (0, false, AdmissionClass::First);
        loop {
            let Some(turns) = self.turns(entries, kept.take()).await else {
                return Ok(None);
            };
            if !has_left_place && let Some(index) = self.held_back() {
                has_left_place = true;
                let turn = turns.into_iter().nth(index);
                let mut place = self.pacing(entries, index);
                place.wait_for_place(deadline, false).await;
                kept = turn.map(|turn| (index, turn));
                pacing = Some((index, place));
                continue;
            }
            let mut turns: Vec<Option<Turn>> = turns.into_iter().map(Some).collect();
            let at = pacing.as_ref().map_or(0, |(index, _)| *index);
            let (_, own) = pacing.get_or_insert_with(|| (at, self.pacing(entries, at)));
            match self
                .round(entries, &mut turns, own, deadline, Some(class))
                .await?
            {
                Step::Acquired(hold) => return Ok(Some(self.deliver(hold, entries, turns))),
                Step::Again(pause) => {
                    drop(turns);
                    sleep(pause).await;
                }
                Step::Busy {
                    index,
                    lock_id,
                    holder,
                } => {
                    rounds += 1;
                    class = AdmissionClass::Woken;
                    if rounds == ROUNDS {
                        return Ok(None);
                    }
                    // From here on the call holds nothing but the turn of the one name that it waits for.
                    let turn = turns.swap_remove(index);
                    drop(turns);
                    if pacing.as_ref().is_none_or(|(awaited, _)| *awaited != index) {
                        pacing = Some((index, self.pacing(entries, index)));
                    }
                    if let Some((_, pacing)) = &mut pacing {
                        self.wait_until_free(index, &entries[index], pacing, &lock_id, holder)
                            .await?;
                    }
                    // Two calls that have each taken a part must not come again at the same time.
                    sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
                    kept = turn.map(|turn| (index, turn));
                }
            }
        }
    }

    /// Waits in the queue of one name until its lock looks free. It looks and does not claim: a claim of this name alone
    /// would keep the lock from others, and a round at each look would write the free locks again and again.
    async fn wait_until_free(
        &self,
        index: usize,
        entry: &Arc<Entry>,
        pacing: &mut Pacing<'_>,
        lock_id: &Arc<str>,
        mut holder: Holder,
    ) -> Result<(), LockError> {
        let name = self.names[index].text();
        loop {
            let remaining = holder.remaining();
            let pause = pacing.after_held(lock_id, false, remaining);
            trace::waiting(name, remaining, pause);
            pacing.pause(pause).await;
            loop {
                match self.look(name, entry).await {
                    Ok(Some(other)) => {
                        holder = other;
                        break;
                    }
                    Ok(None) => return Ok(()),
                    Err(error) => {
                        let pause = self.failed(std::slice::from_ref(entry), pacing, error)?;
                        pacing.pause(pause).await;
                    }
                }
            }
        }
    }

    /// The holder of a lock; `None` if the lock looks free, or is held by a claim that this process has given up.
    async fn look(&self, name: &Arc<str>, entry: &Arc<Entry>) -> Result<Option<Holder>, LockError> {
        let margin = self.engine.config.options.takeover_margin;
        let (store, names) = (Arc::clone(&self.engine.store), [Arc::clone(name)]);
        let looking = async move { store.look(&names, margin, LOOK_LIMIT).await };
        let mut running = query::start(self.engine, entry, looking).await?;
        let Some(lease) = running.remove(name) else {
            return Ok(None);
        };
        if let Some(id) = &lease.holder {
            if self.engine.renewer.given_up.find(id).is_some() {
                return Ok(None);
            }
            self.engine.lines.held_by(name, id);
        }
        let holder = Holder::new(lease.holder, Some(lease.remaining));
        entry.front().set_holder(holder.clone());
        Ok(Some(holder))
    }

    /// One round, until its outcome is known. What it has got is given back unless it got everything.
    async fn round(
        &self,
        entries: &[Arc<Entry>],
        turns: &mut [Option<Turn>],
        pacing: &mut Pacing<'_>,
        deadline: Option<Instant>,
        class: Option<AdmissionClass>,
    ) -> Result<Step, LockError> {
        let mut round = Round::new(self.engine, self.options, self.first, entries);
        loop {
            let error = match round.request(deadline, class).await {
                RoundOutcome::RuntimeStopped => return Err(self.shut_down_error()),
                _ if self.engine.refuses(self.is_inside_hold) => return Err(self.shut_down_error()),
                RoundOutcome::Acquired(hold) if !hold.lease().is_over() => return Ok(Step::Acquired(hold)),
                RoundOutcome::Acquired(_) | RoundOutcome::AlreadyOver => {
                    return Ok(Step::Again(Duration::ZERO));
                }
                RoundOutcome::Busy {
                    index,
                    lock_id,
                    holder,
                } => {
                    let own = round.lock_id().clone();
                    self.awaited.store(index, Relaxed);
                    // The turn of the lock that is held stays with the call, which waits for it.
                    let awaited = turns[index].take();
                    round.give_back(turns.iter_mut().map(Option::take).collect());
                    turns[index] = awaited;
                    let single = self.single(index);
                    if let Some(lock_id) = &lock_id {
                        self.engine.lines.held_by(single.name(), lock_id);
                    }
                    let Some((key, min_hold)) = single.given_up(lock_id) else {
                        entries[index].front().set_holder(holder.clone());
                        return Ok(Step::Busy {
                            index,
                            lock_id: own,
                            holder,
                        });
                    };
                    match boxed(single.release_given_up(key, min_hold)).await {
                        Ok(()) => return Ok(Step::Again(Duration::ZERO)),
                        Err(error) => {
                            let entry = std::slice::from_ref(&entries[index]);
                            return self.failed(entry, pacing, error).map(Step::Again);
                        }
                    }
                }
                // The last known status is "held", and the server had too little time to confirm it.
                RoundOutcome::OutOfTime(_) if self.is_held(entries) => {
                    round.give_back(turns.iter_mut().map(Option::take).collect());
                    return Ok(Step::Again(pacing.after_error()));
                }
                RoundOutcome::OutOfTime(error) | RoundOutcome::Failed(error) => error,
            };
            let is_blocked = driver_error::is_blocked_document(&error);
            if class.is_none() && driver_error::is_unreachable(&error) {
                return Err(error);
            }
            let pause = self.failed(entries, pacing, error)?;
            // A document that a foreign transaction blocks must not keep the other locks from their waiters.
            if is_blocked || !round.may_repeat() {
                round.give_back(turns.iter_mut().map(Option::take).collect());
                return Ok(Step::Again(pause));
            }
            sleep(pause).await;
        }
    }

    /// Notes a request that has failed, and returns the pause before the next one; an error that is not transient ends the
    /// call.
    fn failed(
        &self,
        entries: &[Arc<Entry>],
        pacing: &mut Pacing<'_>,
        error: LockError,
    ) -> Result<Duration, LockError> {
        if !driver_error::is_transient(&error) {
            return Err(error);
        }
        let pause = pacing.after_error();
        trace::retrying(self.names[self.first].text(), &error, pause);
        if driver_error::is_blocked_document(&error) {
            // The other locks are not concerned: tries of them in this process must not end with this error.
            let blocked = |name: &RenderedName| driver_error::blocks(&error, name.text());
            if let Some(index) = self.names.iter().position(blocked) {
                self.awaited.store(index, Relaxed);
            }
            let name = self.names[self.awaited.load(Relaxed)].text();
            if let Some(entry) = entries.iter().find(|entry| entry.name() == name) {
                entry.front().set_failed(error);
            }
        } else {
            for entry in entries {
                entry.front().set_failed(error.clone());
            }
        }
        Ok(pause)
    }

    /// Whether the last known status of the lock that the call waits for is "held".
    fn is_held(&self, entries: &[Arc<Entry>]) -> bool {
        let entry = &entries[self.awaited.load(Relaxed)];
        matches!(entry.front().status(), FrontStatus::Held(_))
    }

    /// Acquires the locks one after the other, each as a single lock; `None` if one was lost in the meantime, and all of
    /// them are given back.
    async fn one_by_one(&self, deadline: Option<Instant>) -> Result<Option<Hold>, LockError> {
        let mut holds: Vec<Hold> = Vec::with_capacity(self.names.len());
        for index in 0..self.names.len() {
            self.awaited.store(index, Relaxed);
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // The minimum and the maximum hold begin when the caller has all locks.
            let options = Arc::new(Options {
                acquire_timeout: left.map(|left| left.max(Duration::from_millis(1))),
                min_hold: Duration::ZERO,
                max_hold: None,
                await_release: true,
                ..Options::clone(self.options)
            });
            let acquire = self.part(index, &options, Instant::now());
            tokio::select! {
                biased;
                acquired = boxed(acquire.wait()) => holds.push(acquired.map_err(|error| self.in_set(error))?),
                () = first_end(&holds) => return Ok(None),
            }
        }
        let hold = Hold::joined(holds, self.first, self.options, &self.meter);
        Ok(hold.filter(|hold| !hold.lease().is_over()))
    }

    /// The error of one of the locks as that of the whole call.
    fn in_set(&self, error: LockError) -> LockError {
        match error {
            LockError::Timeout {
                name,
                holder,
                remaining,
                ..
            } => LockError::Timeout {
                name,
                waited: self.begun.elapsed(),
                holder,
                remaining,
            },
            other => other,
        }
    }

    /// Waits until this call has the turns of all names. While one of them is missing it waits for that one alone.
    ///
    /// `None` if one was missing [`TURNS`] times: a turn that is given back passes to the next caller of its name, and several
    /// calls could go on to pass turns to each other for ever.
    async fn turns(&self, entries: &[Arc<Entry>], mut kept: Option<(usize, Turn)>) -> Option<Vec<Turn>> {
        let mut missing = 0;
        let turns = loop {
            match try_turns(entries, kept.take()) {
                Ok(turns) => break turns,
                Err(_) if missing == TURNS => return None,
                Err(index) => {
                    missing += 1;
                    self.awaited.store(index, Relaxed);
                    let turn = entries[index].turn().await;
                    release_handed_over(std::slice::from_ref(&turn)).await;
                    kept = Some((index, turn));
                }
            }
        };
        release_handed_over(&turns).await;
        let mut pause = Duration::ZERO;
        for turn in &turns {
            let yields = turn.budget().yield_to_others();
            if let Some(moment) = yields {
                turn.budget().grow();
                pause = pause.max(moment);
            }
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        Some(turns)
    }

    /// The first name that this process leaves to others at present.
    fn held_back(&self) -> Option<usize> {
        self.names
            .iter()
            .position(|name| self.engine.lines.place_until(name.text()).is_some())
    }

    /// One step of the call; `None` at its deadline or, without one, when the server has not replied for too long.
    async fn bounded<F: Future>(
        &self,
        entries: &[Arc<Entry>],
        deadline: Option<Instant>,
        step: F,
    ) -> Result<Option<F::Output>, LockError> {
        let time_is_up = async {
            if let Some(deadline) = deadline {
                return tokio::time::sleep_until(deadline).await;
            }
            loop {
                let front = entries[self.awaited.load(Relaxed)].front();
                tokio::select! {
                    biased;
                    () = front.no_reply(self.begun) => return,
                    () = sleep(BUSY_CHECK) => {}
                }
            }
        };
        tokio::select! {
            biased;
            output = step => Ok(Some(output)),
            () = self.engine.until_refused(self.is_inside_hold) => Err(self.shut_down_error()),
            () = time_is_up => Ok(None),
        }
    }

    /// Delivers the hold to the caller: the turns go with the lease, and the waiters behind wait for its holder.
    fn deliver(&self, hold: Hold, entries: &[Arc<Entry>], turns: Vec<Option<Turn>>) -> Hold {
        for entry in entries {
            entry.front().set_held(Holder::local(&hold.lease().key.lock_id));
        }
        let turns = turns.into_iter().flatten().collect();
        hold.lease().deliver_set(turns, &self.meter);
        hold
    }

    /// The pauses of a call that waits for this name.
    fn pacing<'b>(&'b self, entries: &'b [Arc<Entry>], index: usize) -> Pacing<'b> {
        Pacing::new(self.engine, self.names[index].text(), &entries[index], self.begun)
    }

    fn busy(&self, index: usize, holder: Holder) -> BusyLock {
        BusyLock {
            name: Arc::clone(self.names[index].text()),
            holder,
        }
    }

    fn shut_down_error(&self) -> LockError {
        self.single(self.first).shut_down_error()
    }
}

/// The turns of all names, or the place of the first one whose turn another caller has; the others pass on then, with the
/// holds that were handed over with them.
fn try_turns(entries: &[Arc<Entry>], mut kept: Option<(usize, Turn)>) -> Result<Vec<Turn>, usize> {
    let mut turns = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let own = kept.take_if(|(own, _)| *own == index).map(|(_, turn)| turn);
        if let Some(turn) = own.or_else(|| entry.try_turn()) {
            turns.push(turn);
        } else {
            let later = kept.map(|(_, turn)| turn);
            turns.into_iter().chain(later).for_each(Turn::pass_on);
            return Err(index);
        }
    }
    Ok(turns)
}

/// Resolves when one of the leases is over.
async fn first_end(holds: &[Hold]) {
    task::any(holds.iter().map(|hold| boxed(hold.lease().until_over()))).await;
}

/// Releases holds that were handed over with turns: they have claims of their own. Cancel safe: all of them are taken first,
/// and each releases itself when it is dropped.
async fn release_handed_over(turns: &[Turn]) {
    let taken = turns.iter().filter_map(|turn| {
        let handed_over = turn.take_over()?;
        Some((turn, turn.front().request_sent(), handed_over))
    });
    for (turn, release, handed_over) in taken.collect::<Vec<_>>() {
        // No request for this name need follow for a while, so that nothing else would note the reply.
        if boxed(handed_over.release()).await {
            turn.front().replied(release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockProvider;

    /// The time that the call has waited between its locks does not count: it is longer than a maximum hold and a lease.
    #[tokio::test(start_paused = true)]
    async fn the_hold_of_names_that_were_acquired_one_by_one_begins_with_the_last() {
        let provider = LockProvider::in_memory();
        let rival = provider.to_builder().build().unwrap();
        let guard = rival.lock("b").acquire().await.unwrap();
        tokio::spawn(async move {
            sleep(Duration::from_secs(100)).await;
            guard.release().await.unwrap();
        });
        let names = [RenderedName::new("a"), RenderedName::new("b")];
        let options = Arc::new(Options {
            max_hold: Some(Duration::from_secs(60)),
            ..Options::default()
        });
        let call = AcquireSeveral::new(provider.engine(), &names, 0, &options, false);
        let mut hold = call.one_by_one(None).await.unwrap().unwrap();
        assert!(call.begun.elapsed() >= Duration::from_secs(100));
        assert!(hold.lease().acquired.elapsed() < Duration::from_secs(1));
        assert!(hold.lease().is_renewable(Instant::now()));
        hold.release().await.unwrap();
    }

    /// The minimum hold begins when the caller has all locks.
    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_given_back_has_no_minimum_hold() {
        let provider = LockProvider::in_memory();
        let rival = provider.to_builder().build().unwrap();
        let _held = rival.lock("b").acquire().await.unwrap();
        let names = ["a", "b"].map(RenderedName::new);
        let options = Arc::new(Options {
            min_hold: Duration::from_secs(60),
            ..Options::default()
        });
        let call = AcquireSeveral::new(provider.engine(), &names, 0, &options, false);
        let deadline = Instant::now() + Duration::from_secs(1);
        let outcome = call.one_by_one(Some(deadline)).await;
        assert!(matches!(outcome, Err(LockError::Timeout { .. })));
        let begun = Instant::now();
        let free = rival.lock("a").acquire_timeout(None).acquire().await;
        assert!(free.is_ok() && begun.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn free_locks_are_acquired_by_the_first_round() {
        let provider = LockProvider::in_memory();
        let (names, options) = (["a", "b"].map(RenderedName::new), Arc::default());
        let call = AcquireSeveral::new(provider.engine(), &names, 0, &options, false);
        let entries = call.join();
        let mut turns: Vec<_> = entries.iter().map(Entry::try_turn).collect();
        let mut pacing = call.pacing(&entries, 0);
        let round = call.round(&entries, &mut turns, &mut pacing, None, None);
        assert!(matches!(round.await, Ok(Step::Acquired(_))));
    }
}

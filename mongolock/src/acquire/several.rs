//! Getting several locks, all or nothing.
//!
//! A call claims all names with one request. If one of them is held, it gives the others back, waits for that one alone
//! while it holds nothing, and claims all of them again. After three rounds it acquires them one by one, in the order of
//! their names, which ends in any case: a round can fail again and again where others use single names all the time. The
//! same holds for the turns of this process, which a round needs all at once.

mod turns;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::Span;

use self::turns::{Turns, note_held, release_handed_over};
use super::asking::{Held, ends_call};
use super::call::{BusyLock, Call, Search};
use super::claim::{Claim, Target, late_outcome};
use super::pacing::{Pacing, place_until};
use super::query;
use super::{Acquire, Next, Outcome, Tried};
use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::lease::{Entry, Hold, Turn};
use crate::line::Standing;
use crate::moment::Luck;
use crate::name::RenderedName;
use crate::opaque::boxed;
use crate::options::Options;
use crate::queue::{Holder, SetNames};
use crate::store::{AdmissionClass, Looked, driver_error};
use crate::timing::{LINE_POLL, LOOK_LIMIT};
use crate::{Busy, LockError, task, trace};

/// The number of rounds after which the locks are acquired one by one.
const ROUNDS: u32 = 3;

/// The pause between two checks for which name a call waits, while it waits for a reply without a limit.
const BUSY_CHECK: Duration = Duration::from_secs(1);

/// One call that acquires several locks.
pub(crate) struct AcquireSeveral<'a> {
    call: Call<'a>,
    /// The names in their order, each once.
    names: &'a [RenderedName],
    /// The same names: with them a caller in the queue of the first name says which set it takes over whole.
    set: SetNames,
    /// The place of the name that stands for the set in errors and events.
    first: usize,
    /// The place of the name that the call waits for: it decides the error of a call that reaches its limit.
    awaited: AtomicUsize,
}

/// The rounds of a call in which a lock was held.
#[derive(Default)]
struct Rounds {
    number: u32,
    /// The name whose lock was held in the last one, by its place, and the claim that had it. The call waits for it.
    awaited: Option<(usize, Arc<str>)>,
}

impl Rounds {
    /// Counts a round in which the lock of this name was held, and returns whether it was the last one of [`ROUNDS`]. Rounds
    /// without a look may meet the same holder again and do not count then: the call would go on to hold other locks while it
    /// waits for that one.
    fn was_last(&mut self, index: usize, holder: &Holder) -> bool {
        let awaited = holder.lock_id().map(|lock_id| (index, Arc::clone(lock_id)));
        let is_same = awaited.is_some() && awaited == self.awaited;
        self.number += u32::from(!is_same);
        self.awaited = awaited;
        self.number >= ROUNDS
    }
}

/// What the call does after a round.
enum Step {
    Acquired(Hold),
    /// This lock is held by another holder; the round had this id.
    Busy(Held, Arc<str>),
    /// Another round follows after this pause, which does not count among the [`ROUNDS`].
    Again(Duration),
}

impl Search for AcquireSeveral<'_> {
    type Queues = Vec<Arc<Entry>>;

    fn call(&self) -> &Call<'_> {
        &self.call
    }

    fn span(&self) -> Span {
        trace::acquire_set_span(self.names, self.first, &self.call.engine.owner)
    }

    fn join(&self) -> Vec<Arc<Entry>> {
        self.names
            .iter()
            .map(|name| self.call.engine.queues.join(name.text()))
            .collect()
    }

    fn awaited<'s>(&'s self, entries: &'s Vec<Arc<Entry>>) -> (&'s Arc<str>, &'s Arc<Entry>) {
        let entry = &entries[self.awaited.load(Relaxed)];
        (entry.name(), entry)
    }

    /// One round, which is repeated until replies say whether the locks are free. It ends at the first lock that is held.
    async fn attempt(&self, entries: &Vec<Arc<Entry>>, deadline: Instant) -> Result<Tried, LockError> {
        let (mut kept, mut backoff) = (None, self.call.engine.backoff());
        loop {
            let turns = match self.try_turns(entries, kept.take()) {
                Ok(Turns::TakenOver(hold)) => return Ok(Ok(hold)),
                Ok(Turns::All(turns)) => turns,
                Err(index) => {
                    self.awaited.store(index, Relaxed);
                    let set = (index == 0).then(|| self.set());
                    match self.call.turn_unless_busy(&entries[index], set).await? {
                        Ok(turn) => kept = Some((index, turn)),
                        Err(holder) => return Ok(Err(self.busy(index, holder))),
                    }
                    continue;
                }
            };
            release_handed_over(&turns).await;
            let mut turns: Vec<Option<Turn>> = turns.into_iter().map(Some).collect();
            match self
                .round(entries, &mut turns, &mut backoff, Some(deadline), None, None)
                .await?
            {
                Step::Acquired(hold) => return Ok(Ok(self.deliver(hold, entries, turns))),
                Step::Busy(held, _) => return Ok(Err(self.busy(held.index, held.holder))),
                Step::Again(pause) => {
                    drop(turns);
                    sleep(pause).await;
                }
            }
        }
    }

    async fn search(&self, entries: Vec<Arc<Entry>>, deadline: Option<Instant>) -> Result<Hold, LockError> {
        let waiting = boxed(self.wait_for_locks(&entries, deadline));
        let result = self.bounded(&entries, deadline, waiting).await?;
        result.unwrap_or_else(|| Err(self.gave_up(&entries)))
    }

    /// The name that the call waits for changes.
    async fn time_is_up(&self, entries: &Vec<Arc<Entry>>, deadline: Option<Instant>) {
        if deadline.is_some() {
            return self.call.deadline(&entries[0], deadline).await;
        }
        loop {
            let front = entries[self.awaited.load(Relaxed)].front();
            tokio::select! {
                biased;
                () = front.no_reply(self.call.begun) => return,
                () = sleep(BUSY_CHECK) => {}
            }
        }
    }
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
            call: Call::new(engine, &names[first], options, is_inside_hold),
            names,
            set: names.iter().map(|name| Arc::clone(name.text())).collect(),
            first,
            awaited: AtomicUsize::new(first),
        }
    }

    /// The names, for the queue of the first of them.
    pub(super) fn set(&self) -> SetNames {
        Arc::clone(&self.set)
    }

    /// The acquisition of one of the locks, which does not count as a call of its own.
    fn part<'b>(&'b self, index: usize, options: &'b Arc<Options>) -> Acquire<'b> {
        let call = Call {
            engine: self.call.engine,
            name: &self.names[index],
            options,
            is_inside_hold: self.call.is_inside_hold,
            meter: None,
            begun: Instant::now(),
        };
        Acquire::of_part(call, (index == 0).then_some(self))
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
        // The name that the call has waited for, and the number of replies that found its lock held. The pauses themselves last
        // no longer than the turn of the name.
        let mut waited = None;
        let mut backoff = self.call.engine.backoff();
        let (mut rounds, mut has_left_place, mut class) = (Rounds::default(), false, AdmissionClass::First);
        loop {
            let turns = match self.turns(entries, kept.take()).await {
                Some(Turns::TakenOver(hold)) => return Ok(Some(hold)),
                Some(Turns::All(turns)) => turns,
                None => return Ok(None),
            };
            if !has_left_place && let Some(index) = self.held_back() {
                has_left_place = true;
                let turn = turns.into_iter().nth(index);
                if let Some(turn) = &turn {
                    self.pacing(turn).wait_for_place(deadline, false).await;
                }
                kept = turn.map(|turn| (index, turn));
                continue;
            }
            let mut turns: Vec<Option<Turn>> = turns.into_iter().map(Some).collect();
            match self
                .round(
                    entries,
                    &mut turns,
                    &mut backoff,
                    deadline,
                    Some(class),
                    rounds.awaited.clone(),
                )
                .await?
            {
                Step::Acquired(hold) => return Ok(Some(self.deliver(hold, entries, turns))),
                Step::Again(pause) => {
                    drop(turns);
                    sleep(pause).await;
                }
                Step::Busy(Held { index, holder, .. }, lock_id) => {
                    entries[0].budget().shrink();
                    class = AdmissionClass::Woken;
                    if rounds.was_last(index, &holder) {
                        return Ok(None);
                    }
                    // From here on the call holds nothing but the turn of the one name that it waits for.
                    let turn = turns.swap_remove(index);
                    drop(turns);
                    if let Some(turn) = &turn {
                        let replies = waited.filter(|(place, _)| *place == index);
                        let replies = replies.map_or(0, |(_, replies)| replies);
                        let mut pacing = self.pacing(turn).after_replies(replies);
                        self.wait_until_free(turn.entry(), &mut pacing, &lock_id, holder)
                            .await?;
                        waited = Some((index, pacing.held_replies()));
                    }
                    kept = turn.map(|turn| (index, turn));
                }
            }
        }
    }

    /// Waits in the queue of one name until its lock looks free, or until it is time for a round without a look. It looks and
    /// does not claim: a claim of this name alone would keep the lock from others, and a round at each look would write the
    /// free locks again and again.
    async fn wait_until_free(
        &self,
        entry: &Arc<Entry>,
        pacing: &mut Pacing<'_>,
        lock_id: &Arc<str>,
        mut holder: Holder,
    ) -> Result<(), LockError> {
        let name = entry.name();
        loop {
            let remaining = holder.remaining(Instant::now());
            let pause = pacing.after_held(lock_id, false, remaining);
            trace::waiting(name, remaining, pause);
            pacing.pause(pause).await;
            if self.asks_in_its_place(name) {
                return Ok(());
            }
            loop {
                match self.look(name, entry).await {
                    Ok(Some(other)) => {
                        holder = other;
                        break;
                    }
                    Ok(None) => {
                        // Two calls that have each taken a part must not come again at the same time.
                        sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
                        return Ok(());
                    }
                    Err(error) if ends_call(&error, false) => return Err(error),
                    Err(error) => {
                        let pause = pacing.after_error();
                        self.failed(std::slice::from_ref(entry), error, pause);
                        pacing.pause(pause).await;
                    }
                }
            }
        }
    }

    /// Whether the call sends its round without a look: it gets no events of releases and stands first in line, and its round would
    /// come too late after a look. Not while one holder keeps the lock for long, because each round takes the other locks
    /// for a moment.
    fn asks_in_its_place(&self, name: &Arc<str>) -> bool {
        let Engine { lines, notifier, .. } = &**self.call.engine;
        let is_near = |standing: Standing| standing.ahead == 0 && standing.polling_pause <= LINE_POLL;
        lines.standing(name).is_some_and(is_near) && !notifier.hears_of(name)
    }

    /// The holder of a lock; `None` if the lock looks free, or is held by a claim that this process has given up.
    async fn look(&self, name: &Arc<str>, entry: &Arc<Entry>) -> Result<Option<Holder>, LockError> {
        let margin = self.call.engine.config.options.takeover_margin;
        let (store, names) = (Arc::clone(&self.call.engine.store), [Arc::clone(name)]);
        let looking = || async move { store.look(Looked::Names(&names), margin, LOOK_LIMIT).await };
        let mut running = query::start(&self.call.engine.store, entry, looking).await?;
        let is_given_up = |id: &Arc<str>| self.call.given_up(id).is_some();
        let lease = running.remove(name);
        let Some(lease) = lease.filter(|lease| !lease.holder.as_ref().is_some_and(is_given_up)) else {
            entry.front().set_no_holder();
            return Ok(None);
        };
        if let Some(id) = &lease.holder {
            self.call.engine.lines.held_by(name, id);
        }
        let holder = Holder::of_lease(Instant::now(), &lease);
        entry.front().set_holder(holder.clone());
        Ok(Some(holder))
    }

    /// One round, until its outcome is known. What it has got is given back unless it got everything.
    async fn round(
        &self,
        entries: &[Arc<Entry>],
        turns: &mut [Option<Turn>],
        backoff: &mut Backoff,
        deadline: Option<Instant>,
        class: Option<AdmissionClass>,
        awaited: Option<(usize, Arc<str>)>,
    ) -> Result<Step, LockError> {
        let (first, engine) = (self.first, self.call.engine);
        let target = Target::Set { first, awaited };
        let mut round = Claim::of_set(engine, self.call.options, target, entries).in_class(class);
        let mut late = None;
        loop {
            let outcome = match late.take() {
                Some(outcome) => outcome,
                None => round.request(deadline).await,
            };
            if let Outcome::Held(held) = &outcome {
                self.give_back_to_wait(&mut round, turns, held);
            }
            let place = self.awaited.load(Relaxed);
            let entry = &entries[place];
            let outcome = outcome.read(|hold| hold.lease().is_over());
            let next = self
                .call
                .next_after(entry, &mut round.asking, entry.name(), outcome);
            let (error, leaves) = match next.await {
                Next::Deliver(hold) => return Ok(Step::Acquired(hold)),
                Next::ClaimAnew | Next::Again => return Ok(Step::Again(Duration::ZERO)),
                Next::Held(held) => {
                    entry.front().set_holder(held.holder.clone());
                    let lock_id = Arc::clone(round.lock_id());
                    return Ok(Step::Busy(held, lock_id));
                }
                Next::Leave(error) => (error, true),
                Next::Pause(error) => (error, !round.is_open()),
                Next::End(error) => return Err(error),
                Next::Stop => return Err(self.call.shut_down_error()),
            };
            let pause = backoff.next(Luck::draw());
            if let Some(error) = error {
                // The release of a claim concerns its own lock, and a request those of all names.
                let one = std::slice::from_ref(entry);
                self.failed(if round.is_open() { entries } else { one }, error, pause);
            }
            if leaves {
                round.give_back(turns);
                return Ok(Step::Again(pause));
            }
            late = late_outcome(pin!(round.next_outcome()), pin!(sleep(pause))).await;
        }
    }

    /// Gives a round back that has found this lock held. The turn of that lock stays with the call, which waits for it.
    fn give_back_to_wait(&self, round: &mut Claim, turns: &mut [Option<Turn>], held: &Held) {
        self.awaited.store(held.index, Relaxed);
        let awaited = turns[held.index].take();
        round.give_back(turns);
        turns[held.index] = awaited;
    }

    /// Notes a request that has failed, and after which the call pauses.
    fn failed(&self, entries: &[Arc<Entry>], error: LockError, pause: Duration) {
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
    }

    /// Acquires the locks one after the other, each as a single lock, unless the whole set is handed over while the call
    /// waits for the first; `None` if one was lost in the meantime, and all of them are given back.
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
                ..Options::clone(self.call.options)
            });
            let acquire = self.part(index, &options);
            let hold = tokio::select! {
                biased;
                acquired = boxed(acquire.wait()) => acquired.map_err(|error| self.in_set(error))?,
                () = first_end(&holds) => return Ok(None),
            };
            if hold.lease().is_set_of(&self.set) {
                note_held(&hold, &self.join());
                hold.lease().measure(self.call.meter.as_ref());
                return Ok(Some(hold));
            }
            holds.push(hold);
        }
        let first = self.call.engine.queues.join(self.names[0].text());
        first.budget().restart_row(Instant::now(), first.waiting());
        let hold = Hold::joined(holds, self.first, self.call.options, self.call.meter.as_ref());
        Ok(hold.filter(|hold| !hold.lease().is_over()))
    }

    /// The error of one of the locks as that of the whole call.
    fn in_set(&self, error: LockError) -> LockError {
        match Busy::from_error(error) {
            Ok(busy) => LockError::timeout(busy, self.call.begun.elapsed()),
            Err(other) => other,
        }
    }

    /// The first name that this process leaves to others at present.
    fn held_back(&self) -> Option<usize> {
        self.names
            .iter()
            .position(|name| place_until(self.call.engine, name.text()).is_some())
    }

    /// The pauses of a call that waits for the name of this turn.
    fn pacing<'b>(&'b self, turn: &'b Turn) -> Pacing<'b> {
        Pacing::new(self.call.engine, turn, self.call.begun)
    }

    fn busy(&self, index: usize, holder: Holder) -> BusyLock {
        BusyLock::new(self.names[index].text(), holder)
    }
}

/// Resolves when one of the leases is over.
async fn first_end(holds: &[Hold]) {
    task::any(holds.iter().map(|hold| boxed(hold.lease().until_over()))).await;
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
        assert!(call.call.begun.elapsed() >= Duration::from_secs(100));
        assert!(hold.lease().acquired.elapsed() < Duration::from_secs(1));
        assert!(hold.lease().is_renewable(Instant::now()));
        hold.release().await.unwrap();
    }

    /// A call that acquires the locks one by one waits for the first, and the holder of the same set hands all of them over.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_the_first_lock_takes_the_whole_set_over() {
        let provider = LockProvider::in_memory();
        let holder = provider.lock_all(["a", "b"]);
        let first = holder.acquire().await.unwrap();
        let second = tokio::spawn(holder.acquire());
        tokio::task::yield_now().await;
        let names = ["a", "b"].map(RenderedName::new);
        let options = Arc::default();
        let call = AcquireSeveral::new(provider.engine(), &names, 1, &options, false);
        let release = async {
            tokio::task::yield_now().await;
            first.release().await.unwrap();
            // Its request reserves tokens, because the call waits behind it.
            let second = second.await.unwrap().unwrap();
            let token = second.fencing_token_of("b").unwrap();
            second.release().await.unwrap();
            token
        };
        let (acquired, token) = tokio::join!(call.one_by_one(None), release);
        let mut hold = acquired.unwrap().unwrap();
        assert!(hold.lease().is_handed_over());
        assert_eq!(hold.lease().name(), "b");
        assert_eq!(hold.lease().token.get(), token.get() + 1);
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

    #[test]
    fn rounds_that_meet_the_same_holder_count_once() {
        let mut rounds = Rounds::default();
        let held_by = |id: Option<&str>| Holder::new(Instant::now(), id.map(Arc::from), None, None);
        let met = [Some("one"), Some("one"), Some("two"), Some("two"), None];
        let last = met.map(|id| rounds.was_last(0, &held_by(id)));
        assert_eq!(last, [false, false, false, false, true]);
        let mut unnamed = Rounds::default();
        assert_eq!(
            [(); 3].map(|()| unnamed.was_last(0, &held_by(None))),
            [false, false, true]
        );
    }

    #[tokio::test]
    async fn free_locks_are_acquired_by_the_first_round() {
        let provider = LockProvider::in_memory();
        let (names, options) = (["a", "b"].map(RenderedName::new), Arc::default());
        let call = AcquireSeveral::new(provider.engine(), &names, 0, &options, false);
        let entries = call.join();
        let mut turns: Vec<_> = entries.iter().map(Entry::try_turn).collect();
        let mut backoff = provider.engine().backoff();
        let round = call.round(&entries, &mut turns, &mut backoff, None, None, None);
        assert!(matches!(round.await, Ok(Step::Acquired(_))));
    }
}

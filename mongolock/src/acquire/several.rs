//! Getting several locks, all or nothing.
//!
//! A call claims all names with one request. If one of them is held, it gives the others back, waits for that one alone
//! while it holds nothing, and claims all of them again. After three rounds it acquires them one by one, in the order of
//! their names, which ends in any case: a round can fail again and again where others use single names all the time. The
//! same holds for the turns of this process, which a round needs all at once.

mod one_by_one;
mod round;
mod turns;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::sleep;
use tracing::Span;

use self::round::{Round, Rounds};
use self::turns::Turns;
use super::Tried;
use super::asking::Held;
use super::call::{BusyLock, Call, Search, release_handed_over};
use super::pacing::{Pacing, yields_until};
use crate::engine::Engine;
use crate::lease::{Entry, Hold, Turn};
use crate::name::RenderedName;
use crate::options::{OnBusy, Options};
use crate::queue::{Holder, SetNames};
use crate::{LockError, trace};

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

impl Search for AcquireSeveral<'_> {
    type Queues = Vec<Arc<Entry>>;
    type Begun = ();

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

    async fn search(&self, entries: &Vec<Arc<Entry>>, (): ()) -> Result<Tried, LockError> {
        if self.call.is_try {
            self.attempt(entries).await
        } else {
            self.wait_for_locks(entries).await.map(Ok)
        }
    }

    /// The name that the call waits for changes.
    async fn time_is_up(&self, entries: &Vec<Arc<Entry>>) {
        if self.call.deadline.is_some() {
            return self.call.time_is_up(&entries[0]).await;
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
    pub(crate) fn several(
        engine: &'a Arc<Engine>,
        names: &'a [RenderedName],
        first: usize,
        options: &'a Arc<Options>,
        is_inside_hold: bool,
        on_busy: OnBusy,
    ) -> Self {
        Self {
            call: Call::new(engine, &names[first], options, is_inside_hold, on_busy),
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

    /// Rounds until replies say whether the locks are free. It ends at the first lock that is held.
    async fn attempt(&self, entries: &[Arc<Entry>]) -> Result<Tried, LockError> {
        let (mut kept, mut rounds) = (None, Rounds::new(&self.call));
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
            match self.round(entries, turns, &mut rounds).await? {
                Round::Acquired(hold) => return Ok(Ok(hold)),
                Round::Held(held, ..) => return Ok(Err(self.busy(held.index, held.holder))),
                Round::Unclear => {}
            }
        }
    }

    async fn wait_for_locks(&self, entries: &[Arc<Entry>]) -> Result<Hold, LockError> {
        loop {
            if let Some(hold) = self.some_rounds(entries).await? {
                return Ok(hold);
            }
            if let Some(hold) = self.one_by_one().await? {
                return Ok(hold);
            }
        }
    }

    /// Makes [`ROUNDS`] rounds; `None` if a lock was held in each of them, or if the turns for one never came together.
    async fn some_rounds(&self, entries: &[Arc<Entry>]) -> Result<Option<Hold>, LockError> {
        let mut kept: Option<(usize, Turn)> = None;
        // The name that the call has waited for, and the number of replies that found its lock held. The pauses themselves last
        // no longer than the turn of the name.
        let mut waited = (0, 0);
        let mut rounds = Rounds::new(&self.call);
        let mut has_yielded = false;
        loop {
            let turns = match self.turns(entries, kept.take()).await {
                Some(Turns::TakenOver(hold)) => return Ok(Some(hold)),
                Some(Turns::All(turns)) => turns,
                None => return Ok(None),
            };
            if !has_yielded && let Some(index) = self.first_yielded() {
                has_yielded = true;
                let turn = turns.into_iter().nth(index);
                if let Some(turn) = &turn {
                    Pacing::new(&self.call, turn).wait_while_yielding().await;
                }
                kept = turn.map(|turn| (index, turn));
                continue;
            }
            match self.round(entries, turns, &mut rounds).await? {
                Round::Acquired(hold) => return Ok(Some(hold)),
                Round::Unclear => {}
                Round::Held(Held { index, holder, .. }, lock_id, turn) => {
                    entries[0].budget().shrink();
                    if rounds.was_last(index, &holder) {
                        return Ok(None);
                    }
                    // From here on the call holds nothing but the turn of the one name that it waits for.
                    if let Some(turn) = &turn {
                        let replies = if waited.0 == index { waited.1 } else { 0 };
                        let mut pacing = Pacing::new(&self.call, turn).after_replies(replies);
                        self.wait_until_free(turn.entry(), &mut pacing, &lock_id, holder)
                            .await?;
                        waited = (index, pacing.held_replies());
                    }
                    kept = turn.map(|turn| (index, turn));
                }
            }
        }
    }

    /// The first name that this process leaves to others at present.
    fn first_yielded(&self) -> Option<usize> {
        self.names
            .iter()
            .position(|name| yields_until(self.call.engine, name.text()).is_some())
    }

    fn busy(&self, index: usize, holder: Holder) -> BusyLock {
        BusyLock::new(self.names[index].text(), holder)
    }
}

#[cfg(test)]
mod tests;

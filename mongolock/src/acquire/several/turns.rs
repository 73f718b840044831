//! The turns of a call for several locks in this process: it needs those of all names at once, and a hold of the whole set may
//! come with that of the first one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;

use super::AcquireSeveral;
use crate::acquire::call::release_handed_over;
use crate::lease::{Entry, Hold, Turn};
use crate::moment::Moment;
use crate::queue::Holder;

/// The number of waits for a missing turn of this process after which the locks are acquired one by one.
const TURNS: u32 = 5;

/// What the call has in this process.
pub(super) enum Turns {
    /// The turns of all names.
    All(Vec<Turn>),
    /// A hold of the whole set, which was handed over and is delivered.
    TakenOver(Hold),
}

impl AcquireSeveral<'_> {
    /// A hold of the whole set that was handed over with the turn of the first name, delivered with it: it has the turns of the
    /// others.
    fn take_over(&self, entries: &[Arc<Entry>], turn: Turn) -> Result<Hold, Turn> {
        match self.call.take_over(&turn, &self.set, self.first) {
            Some(hold) => Ok(self.deliver(hold, entries, [turn])),
            None => Err(turn),
        }
    }

    /// Waits until this call has the turns of all names. While one of them is missing it waits for that one alone.
    ///
    /// `None` if one was missing [`TURNS`] times: a turn that is given back passes to the next caller of its name, and several
    /// calls could go on to pass turns to each other for ever.
    pub(super) async fn turns(
        &self,
        entries: &[Arc<Entry>],
        mut kept: Option<(usize, Turn)>,
    ) -> Option<Turns> {
        let mut missing = 0;
        let turns = loop {
            match self.try_turns(entries, kept.take()) {
                Ok(Turns::All(turns)) => break turns,
                Ok(taken_over @ Turns::TakenOver(_)) => return Some(taken_over),
                Err(_) if missing == TURNS => return None,
                Err(index) => {
                    missing += 1;
                    self.awaited.store(index, Relaxed);
                    let set = (index == 0).then(|| self.set());
                    match self.take_over(entries, entries[index].turn_for(set).await) {
                        Ok(hold) => return Some(Turns::TakenOver(hold)),
                        Err(turn) => {
                            release_handed_over(std::slice::from_ref(&turn)).await;
                            kept = Some((index, turn));
                        }
                    }
                }
            }
        };
        release_handed_over(&turns).await;
        let mut pause = Duration::ZERO;
        for turn in &turns {
            pause = pause.max(turn.budget().take_yield(Moment::present()).unwrap_or_default());
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        Some(Turns::All(turns))
    }

    /// Delivers the hold to the caller: the turns go with the lease, and the waiters behind wait for its holder.
    pub(super) fn deliver(
        &self,
        hold: Hold,
        entries: &[Arc<Entry>],
        turns: impl IntoIterator<Item = Turn>,
    ) -> Hold {
        note_held(&hold, entries);
        hold.deliver(turns, self.call.meter.as_ref());
        hold
    }

    /// The turns of all names, unless a hold of the whole set comes with that of the first one. Otherwise the place of the
    /// first name whose turn another caller has; the others pass on then, with the holds that were handed over with them.
    pub(super) fn try_turns(
        &self,
        entries: &[Arc<Entry>],
        mut kept: Option<(usize, Turn)>,
    ) -> Result<Turns, usize> {
        let mut turns = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let own = kept.take_if(|(own, _)| *own == index).map(|(_, turn)| turn);
            let Some(turn) = own.or_else(|| entry.try_turn()) else {
                let later = kept.map(|(_, turn)| turn);
                turns.into_iter().chain(later).for_each(Turn::pass_on);
                return Err(index);
            };
            match self.take_over(entries, turn) {
                Ok(hold) => return Ok(Turns::TakenOver(hold)),
                Err(turn) => turns.push(turn),
            }
        }
        Ok(Turns::All(turns))
    }
}

/// Notes in the queues of all names that this process has the locks.
pub(super) fn note_held(hold: &Hold, entries: &[Arc<Entry>]) {
    for (entry, key) in entries.iter().zip(hold.lease().keys()) {
        entry
            .front()
            .set_held(Holder::local(&key.lock_id, hold.lease().acquired));
    }
}

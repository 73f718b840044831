//! The turns of a call for several locks in this process: it needs those of all names at once, and a hold of the whole set may
//! come with that of the first one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;

use super::super::one::yields;
use super::AcquireSeveral;
use crate::lease::{Entry, Hold, Turn};
use crate::opaque::boxed;
use crate::queue::Holder;
use crate::trace;

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
    /// A hold of the whole set that was handed over with the turn of the first name. The turns of the others come with it.
    pub(in crate::acquire) fn take_over(&self, turn: &Turn) -> Option<Hold> {
        match turn.take_over()?.taken_over(&self.set, self.call.options) {
            Ok(hold) => {
                let hold = hold.standing_for(self.first);
                hold.lease().report(trace::acquired);
                Some(hold)
            }
            Err(other) => {
                turn.put_back(other);
                None
            }
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
                    let turn = entries[index].turn_for(set).await;
                    if let Some(hold) = self.take_over(&turn) {
                        return Some(Turns::TakenOver(self.deliver_taken_over(hold, entries, turn)));
                    }
                    release_handed_over(std::slice::from_ref(&turn)).await;
                    kept = Some((index, turn));
                }
            }
        };
        release_handed_over(&turns).await;
        let mut pause = Duration::ZERO;
        for turn in &turns {
            pause = pause.max(yields(turn).unwrap_or_default());
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        Some(Turns::All(turns))
    }

    /// Delivers the hold to the caller: the turns go with the lease, and the waiters behind wait for its holder.
    pub(super) fn deliver(&self, hold: Hold, entries: &[Arc<Entry>], turns: Vec<Option<Turn>>) -> Hold {
        note_held(&hold, entries);
        let turns = turns.into_iter().flatten();
        hold.lease().deliver(turns, self.call.meter.as_ref());
        hold
    }

    /// The same for a hold that was handed over, whose other turns it has.
    pub(super) fn deliver_taken_over(&self, hold: Hold, entries: &[Arc<Entry>], turn: Turn) -> Hold {
        note_held(&hold, entries);
        hold.lease().deliver([turn], self.call.meter.as_ref());
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
            if let Some(turn) = own.or_else(|| entry.try_turn()) {
                if index == 0
                    && let Some(hold) = self.take_over(&turn)
                {
                    return Ok(Turns::TakenOver(self.deliver_taken_over(hold, entries, turn)));
                }
                turns.push(turn);
            } else {
                let later = kept.map(|(_, turn)| turn);
                turns.into_iter().chain(later).for_each(Turn::pass_on);
                return Err(index);
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

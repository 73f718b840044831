//! One round of a call for several locks: a claim on all of them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;

use super::AcquireSeveral;
use crate::acquire::asking::Held;
use crate::acquire::call::Call;
use crate::acquire::claim::Claim;
use crate::acquire::target::Target;
use crate::acquire::{Next, Outcome};
use crate::backoff::Backoff;
use crate::few::Few;
use crate::lease::{Entry, Hold, Turn};
use crate::moment::Luck;
use crate::name::RenderedName;
use crate::queue::Holder;
use crate::store::{AdmissionClass, driver_error};
use crate::{LockError, trace};

/// The number of rounds after which the locks are acquired one by one.
const ROUNDS: u32 = 3;

/// The rounds of a call.
pub(super) struct Rounds {
    /// Among which requests those of the next round are admitted.
    class: AdmissionClass,
    backoff: Backoff,
    /// The number of rounds in which a lock was held.
    held: u32,
    /// The name whose lock was held in the last one, by its place, and the claim that had it. The call waits for it.
    awaited: Option<(usize, Arc<str>)>,
}

impl Rounds {
    pub(super) fn new(call: &Call<'_>) -> Self {
        Self {
            class: call.first_class(),
            backoff: call.engine.backoff(),
            held: 0,
            awaited: None,
        }
    }

    /// Counts a round in which the lock of this name was held, and returns whether it was the last one of [`ROUNDS`]. Rounds
    /// without a look may meet the same holder again and do not count then: the call would go on to hold other locks while it
    /// waits for that one.
    pub(super) fn was_last(&mut self, index: usize, holder: &Holder) -> bool {
        self.class = AdmissionClass::Woken;
        let awaited = holder.lock_id().map(|lock_id| (index, Arc::clone(lock_id)));
        let is_same = awaited.is_some() && awaited == self.awaited;
        self.held += u32::from(!is_same);
        self.awaited = awaited;
        self.held >= ROUNDS
    }
}

/// How a round has ended.
pub(super) enum Round {
    Acquired(Hold),
    /// Another holder has this lock. The round had this id; the turn is that of the name of the lock.
    Held(Held, Arc<str>, Option<Turn>),
    /// Another round follows, which does not count among the [`ROUNDS`].
    Unclear,
}

impl AcquireSeveral<'_> {
    /// One round, until its outcome is known. What it has got is given back unless it got everything.
    pub(super) async fn round(
        &self,
        entries: &[Arc<Entry>],
        turns: Vec<Turn>,
        rounds: &mut Rounds,
    ) -> Result<Round, LockError> {
        let mut turns: Vec<Option<Turn>> = turns.into_iter().map(Some).collect();
        let (first, awaited) = (self.first, rounds.awaited.clone());
        let target = Target::Set { first, awaited };
        let mut claim = Claim::new(&self.call, rounds.class, target, Few::from(entries.to_vec()));
        let mut outcome = claim.request().await;
        loop {
            if let Outcome::Held(held) = &outcome {
                self.give_back_to_wait(&mut claim, &mut turns, held);
            }
            let entry = &entries[self.awaited.load(Relaxed)];
            let (error, leaves) = match self.call.next_after(entry, &mut claim, outcome).await {
                Next::Deliver(hold) => {
                    let hold = self.deliver(hold, entries, turns.into_iter().flatten());
                    return Ok(Round::Acquired(hold));
                }
                Next::ClaimAnew | Next::Again => return Ok(Round::Unclear),
                Next::Held(held) => {
                    entry.front().set_holder(held.holder.clone());
                    let turn = turns.swap_remove(held.index);
                    return Ok(Round::Held(held, Arc::clone(claim.lock_id()), turn));
                }
                Next::Leave(error) => (error, true),
                Next::Pause(error) => (error, !claim.is_open()),
                Next::End(error) => return Err(error),
                Next::Stop => return Err(self.call.shut_down_error()),
            };
            let pause = rounds.backoff.next(Luck::draw());
            if let Some(error) = error {
                // The release of a claim concerns its own lock, and a request those of all names.
                let one = std::slice::from_ref(entry);
                self.failed(if claim.is_open() { entries } else { one }, error, pause);
            }
            if leaves {
                claim.give_back(&mut turns);
                drop((claim, turns));
                sleep(pause).await;
                return Ok(Round::Unclear);
            }
            outcome = claim.outcome_after(pin!(sleep(pause))).await;
        }
    }

    /// Gives a round back that has found this lock held. The turn of that lock stays with the call, which waits for it.
    fn give_back_to_wait(&self, claim: &mut Claim, turns: &mut [Option<Turn>], held: &Held) {
        self.awaited.store(held.index, Relaxed);
        let awaited = turns[held.index].take();
        claim.give_back(turns);
        turns[held.index] = awaited;
    }

    /// Notes a request that has failed, and after which the call pauses.
    pub(super) fn failed(&self, entries: &[Arc<Entry>], error: LockError, pause: Duration) {
        trace::retrying(self.names[self.first].text(), &error, pause);
        if !driver_error::is_blocked_document(&error) {
            for entry in entries {
                entry.front().set_failed(error.clone());
            }
            return;
        }
        // The other locks are not concerned: tries of them in this process must not end with this error.
        let blocked = |name: &RenderedName| driver_error::blocks(&error, name.text());
        if let Some(index) = self.names.iter().position(blocked) {
            self.awaited.store(index, Relaxed);
        }
        let name = self.names[self.awaited.load(Relaxed)].text();
        if let Some(entry) = entries.iter().find(|entry| entry.name() == name) {
            entry.front().set_failed(error);
        }
    }
}

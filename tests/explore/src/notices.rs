//! What callers and holders are notified of.

use crate::core::{Ended, Failure, Fault, Hold, Notice, Time};
use crate::network::{Cell, Role};
use crate::process::{Before, Holds, State};
use crate::protocol::{Document, Name, Until};
use crate::setup::Wants;
use crate::world::World;

impl World<'_> {
    pub(crate) fn notified(&mut self, number: usize, cell: Cell, notice: Notice) {
        let caller = usize::from(cell.caller);
        let is_present = self.processes[number].rounds[caller] == cell.round;
        match notice {
            Notice::Held(hold, until) => {
                let tokens = match hold {
                    Hold::One(_, token) => vec![token],
                    Hold::Set(_) => Vec::new(),
                };
                self.got(number, cell, hold, tokens, until);
            }
            Notice::HeldAll(hold, tokens, until) => self.got(number, cell, hold, tokens, until),
            Notice::Extended(end) => {
                if let State::Holds(holds) = &mut self.process(number).callers[caller]
                    && is_present
                {
                    let is_later = end > std::mem::replace(&mut holds.until, end);
                    self.judge_extension(end, is_later);
                }
            }
            Notice::Lost(_) => {
                // A set that waits is notified of each lock that it has lost, and begins anew.
                if let State::Holds(holds) = &self.processes[number].callers[caller]
                    && is_present
                {
                    let hold = holds.hold;
                    self.judge.progress = self.now;
                    self.process(number).callers[caller] = State::Lost(hold);
                }
            }
            Notice::Ended(ended) => self.ended(number, cell, &ended),
            Notice::Committed(known) => self.committed(number, cell, &known),
            Notice::Failed(failure) => self.failed(number, cell, &failure),
        }
    }

    /// A caller has what it wants.
    fn got(&mut self, number: usize, cell: Cell, hold: Hold, tokens: Vec<i64>, until: Time) {
        let caller = usize::from(cell.caller);
        let is_present = self.processes[number].rounds[caller] == cell.round;
        let waits = match &self.processes[number].callers[caller] {
            State::Waits(waits) if is_present => waits.clone(),
            _ => return self.judge.fails("a hold for a caller that does not wait"),
        };
        let documents = waits.names.iter().filter_map(|name| self.documents.get(name));
        let ids = documents.filter_map(|document| {
            let id = document.lock_id.text()?;
            Some((id.clone(), document.token.long()?))
        });
        let holds = Holds {
            names: waits.names.clone(),
            hold,
            tokens,
            until,
            ids: ids.collect(),
            has_committed: false,
        };
        self.judge_hold(number, caller, &holds);
        if self.setup.caller(number, caller).wants == Wants::Lease
            && let Some(handle) = &mut self.handle
        {
            let was_taken = std::mem::replace(&mut handle.is_taken, true);
            self.judge.unless(!was_taken, "two callers have resumed a lease");
        }
        self.judge.progress = self.now;
        self.process(number).callers[caller] = State::Holds(holds);
    }

    fn failed(&mut self, number: usize, cell: Cell, failure: &Failure) {
        let caller = usize::from(cell.caller);
        let is_present = self.processes[number].rounds[caller] == cell.round;
        match &self.processes[number].callers[caller] {
            State::Waits(waits) if is_present => {
                let waits = waits.clone();
                self.judge_failure(number, &waits, failure);
                self.goes(number, caller);
            }
            _ => self.judge.fails("a failure for a caller that does not wait"),
        }
    }

    /// A hold has ended: by its caller, who waits for that, or by its transaction.
    fn ended(&mut self, number: usize, cell: Cell, ended: &Result<Ended, Option<Fault>>) {
        let caller = usize::from(cell.caller);
        if cell.role == Role::Call {
            if matches!(self.processes[number].callers[caller], State::Holds(_)) {
                self.goes(number, caller);
            }
            return;
        }
        let process = self.process(number);
        let Some(place) = process.awaited.iter().position(|(own, _)| *own == cell) else {
            return self.judge.fails("the end of a hold is told twice");
        };
        let (_, before) = process.awaited.remove(place);
        match ended {
            Ok(Ended::Released) if self.shows_loss(number, caller, &before) => {
                self.judge.fails("a hold is called released that was lost before");
            }
            Ok(Ended::Detached) => self.detached(),
            _ => {}
        }
    }

    /// Whether a release finds that the hold was lost. It cannot know that if another claim has had the lock since; nor can a mark
    /// after the end of its period, which leaves the same document.
    fn shows_loss(&self, number: usize, caller: usize, before: &Before) -> bool {
        let once = self.setup.caller(number, caller).once;
        let is_over = |document: &Document| {
            let until = once
                .zip(document.acquired_at.date())
                .map(|(once, at)| once.mark_until(at));
            matches!(until, Some(Until::At(end)) if document.expires_at.date() >= Some(end))
        };
        let is_released = |(name, token): &(Name, i64)| {
            self.documents.get(name).is_some_and(|document| {
                let is_empty = document.lock_id.text().is_some_and(|id| id.is_empty());
                is_empty && document.token.long() == Some(*token) && !is_over(document)
            })
        };
        match before {
            Before::Held => false,
            Before::Lost => true,
            Before::Replaced(documents) => documents.iter().any(is_released),
        }
    }

    fn detached(&mut self) {
        let Some(handle) = &mut self.handle else { return };
        handle.is_delivered = true;
        let documents = &self.documents;
        let is_there = handle.leases.iter().all(|(name, id)| {
            documents
                .get(name)
                .is_some_and(|document| document.lock_id.text() == Some(id))
        });
        self.judge
            .unless(is_there, "a lease is called detached, and nobody can resume it");
    }

    fn committed(&mut self, number: usize, cell: Cell, known: &Result<bool, Option<Fault>>) {
        let process = self.process(number);
        let Some(place) = process.awaited.iter().position(|(own, _)| *own == cell) else {
            return self.judge.fails("the outcome of a transaction is told twice");
        };
        process.awaited.remove(place);
        let truth = self.was_made(number, usize::from(cell.caller));
        let is_true = known.as_ref().is_ok_and(|known| Some(*known) == truth);
        self.judge.unless(
            is_true || known.is_err(),
            "a transaction is said to have another outcome",
        );
    }
}

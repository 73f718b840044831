//! What callers and holders are notified of.

use crate::core::limits::TOKENS;
use crate::core::{CallFailure, Ended, Event, Fault, Grant, Key, MS, Notice, Time};
use crate::network::{Cell, Role};
use crate::process::{Awaited, Before, Holds, Phase, State};
use crate::protocol::{Document, LockId, Name, Until};
use crate::server::SEPARATOR;
use crate::setup::Wants;
use crate::world::World;

impl World<'_> {
    pub(crate) fn notified(&mut self, number: usize, cell: Cell, notice: Notice) {
        let caller = usize::from(cell.caller);
        let is_present = self.processes[number].rounds[caller] == cell.round;
        match notice {
            Notice::Held(hold, grants, until) => self.got(number, cell, hold, &grants, until),
            Notice::Extended(end) => {
                if let State::Holds(holds) = &mut self.process(number).callers[caller]
                    && is_present
                {
                    let is_later = end > std::mem::replace(&mut holds.until, end);
                    let is_too_late = end > holds.ends_by;
                    self.judge_extension(end, is_later);
                    self.judge
                        .unless(!is_too_late, "a hold is renewed for longer than it may last");
                }
            }
            Notice::Lost(loss) => {
                // A set that waits is notified of each lock that it has lost, and begins anew.
                if let State::Holds(holds) = &self.processes[number].callers[caller]
                    && is_present
                {
                    let hold = holds.hold;
                    self.judge_loss(number, loss, &holds.clone());
                    self.judge.progress = self.now;
                    self.process(number).callers[caller] = State::Lost(hold);
                }
            }
            Notice::Ended(ended) => self.ended(number, cell, &ended),
            Notice::Committed(known) => self.committed(number, cell, known),
            Notice::Failed(failure) => self.failed(number, cell, &failure),
        }
    }

    /// A caller has what it wants.
    fn got(&mut self, number: usize, cell: Cell, hold: Key, grants: &[Grant], until: Time) {
        let caller = usize::from(cell.caller);
        let is_present = self.processes[number].rounds[caller] == cell.round;
        let waits = match &self.processes[number].callers[caller] {
            State::Waits(waits) if is_present => waits.clone(),
            _ => return self.judge.fails("a hold for a caller that does not wait"),
        };
        let options = self.setup.caller(number, caller);
        let most = options
            .max_hold
            .map(|most| self.now + (most + options.expiry) * MS);
        let claims = waits.names.iter().zip(grants);
        let claims = claims.map(|(name, grant)| self.claim_of(name, grant));
        let holds = Holds {
            names: waits.names.clone(),
            hold,
            claims: claims.collect(),
            tokens: grants.iter().map(|grant| grant.token).collect(),
            until,
            ends_by: most.unwrap_or(Time::NEVER),
            has_committed: false,
        };
        self.judge_hold(number, caller, waits.begun, &holds);
        if self.setup.caller(number, caller).wants == Wants::Lease
            && let Some(handle) = &mut self.handle
        {
            let was_taken = std::mem::replace(&mut handle.is_taken, true);
            self.judge.unless(!was_taken, "two callers have resumed a lease");
        }
        self.judge.progress = self.now;
        self.process(number).callers[caller] = State::Holds(holds);
    }

    /// The document of a grant, and what it says. It has no id if another claim has it.
    fn claim_of(&self, name: &Name, grant: &Grant) -> (Name, LockId, i64) {
        let name = match grant.permit {
            Some(number) if name.ends_with(SEPARATOR) => format!("{name}{number}").into(),
            _ => name.clone(),
        };
        let document = self.documents.get(&name);
        let own = document.filter(|document| document.lock_id.text() == Some(&grant.id));
        let last = own.and_then(|document| document.token.long());
        match last.filter(|last| (grant.token..grant.token + TOKENS).contains(last)) {
            Some(last) => (name, grant.id.clone(), last),
            None => (name, "".into(), 0),
        }
    }

    fn failed(&mut self, number: usize, cell: Cell, failure: &CallFailure) {
        let caller = usize::from(cell.caller);
        let is_present = self.processes[number].rounds[caller] == cell.round;
        match &self.processes[number].callers[caller] {
            State::Waits(waits) if is_present => {
                let waits = waits.clone();
                self.judge_failure(number, caller, &waits, failure);
                self.goes(number, caller);
            }
            _ => self
                .judge
                .unless(self.is_leaving, "a failure for a caller that does not wait"),
        }
    }

    /// A hold has ended: by its caller, who waits for that, or by its transaction.
    fn ended(&mut self, number: usize, cell: Cell, ended: &Result<Ended, Option<Fault>>) {
        let caller = usize::from(cell.caller);
        if cell.role == Role::Call {
            let is_present = self.processes[number].rounds[caller] == cell.round;
            if is_present && matches!(self.processes[number].callers[caller], State::Holds(_)) {
                self.goes(number, caller);
            }
            return;
        }
        let process = self.process(number);
        let Some(place) = process.awaited.iter().position(|own| own.cell == cell) else {
            return self.judge.fails("the end of a hold is told twice");
        };
        let awaited = process.awaited.remove(place);
        match ended {
            Ok(Ended::Released | Ended::HandedOver | Ended::Marked)
                if self.shows_loss(number, caller, &awaited.before) =>
            {
                self.judge.fails("a hold is called released that was lost before");
            }
            Ok(Ended::Lost) if !self.may_be_lost(number, caller, &awaited) => {
                self.judge.fails("a hold is called lost that was held to its end");
            }
            Ok(Ended::Detached) => return self.detached(),
            _ => {}
        }
        if !awaited.leases.is_empty() {
            self.feed(number, Event::Discard(awaited.leases));
        }
    }

    /// Whether a hold may have been lost during its end. Nobody can tell a mark that is over from a loss, or a release that the driver
    /// has sent twice; and a shutdown ends what waits for a transaction.
    fn may_be_lost(&self, number: usize, caller: usize, awaited: &Awaited) -> bool {
        let is_forced = self.left.forced < self.setup.faults.forced;
        let is_closed = self.processes[number].phase == Phase::Closed;
        let is_marked = self.setup.caller(number, caller).once.is_some() && awaited.since < self.now;
        let is_over = !matches!(awaited.before, Before::Held) || awaited.until <= self.now;
        is_over || is_forced || is_closed || is_marked || self.setup.faults.doubled > 0
    }

    /// Whether a release finds that the hold was lost. It cannot know that if another claim has had the lock since; nor can a mark
    /// after the end of its period, which leaves the same document.
    fn shows_loss(&self, number: usize, caller: usize, before: &Before) -> bool {
        let once = self.setup.caller(number, caller).once;
        let is_over = |document: &Document| {
            let until = once
                .zip(document.acquired_at.date())
                .map(|(once, at)| once.mark_of(at, Time::NEVER).0);
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
            // Where no token was left for the next hold, an own release leaves the same document.
            Before::Replaced(documents, tokens) => {
                let mut told_apart = documents.iter().filter(|(_, token)| !tokens.contains(token));
                self.knows_replies() || told_apart.any(is_released)
            }
        }
    }

    /// Whether each command that was applied has had its reply.
    fn knows_replies(&self) -> bool {
        let faults = &self.setup.faults;
        let unknown = faults.lost + faults.unclear + faults.blocked + faults.rejected + faults.doubled;
        unknown + faults.slow == 0
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

    fn committed(&mut self, number: usize, cell: Cell, known: Option<bool>) {
        let process = self.process(number);
        let Some(place) = process.awaited.iter().position(|own| own.cell == cell) else {
            return self.judge.fails("the outcome of a transaction is told twice");
        };
        process.awaited.remove(place);
        let truth = self.was_made(number, usize::from(cell.caller));
        let is_true = known.is_none() || known == truth;
        self.judge
            .unless(is_true, "a transaction is said to have another outcome");
    }
}

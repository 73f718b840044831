//! What must never be, in any situation.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use crate::core::{LossReason, MS, OncePolicy, Span, Time};
use crate::hash::date;
use crate::network::Role;
use crate::process::{Awaited, Holds, Phase, State, Waits, mark_of};
use crate::protocol::text::{is_claim, is_mark};
use crate::protocol::{Document, Id, LockId, Ms, Name, Row, Then};
use crate::server::{SEPARATOR, is_of};
use crate::setup::{Caller, Wants};
use crate::world::{Handle, World};

/// For how long nothing may happen while a caller waits and no caller holds.
const STUCK: Span = 90_000 * MS;

/// Twice the part of the lease that its holder does not rely on: by then the server has freed a lease that nothing prolongs.
const ENDS_SOON: Span = 64 * MS;

#[derive(Debug, Clone)]
pub(crate) struct Judge {
    pub(crate) breach: Option<&'static str>,
    /// The longest time for which a caller has waited for what it could have.
    pub(crate) longest_free: Span,
    /// The number of locks that a claim without a user has at the end.
    pub(crate) ghosts: u64,
    /// When a caller last came, got a lock or went.
    pub(crate) progress: Time,
    last_tokens: BTreeMap<Name, i64>,
    /// Until when the last mark of each lock stands.
    marks: BTreeMap<Name, Ms>,
    /// Until when the last minimum hold of each lock runs.
    least: BTreeMap<Name, Ms>,
}

/// What follows from the rest of a situation is left out.
impl Hash for Judge {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (name, until) in self.marks.iter().chain(&self.least) {
            (name, date(*until)).hash(state);
        }
    }
}

impl Judge {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            breach: None,
            longest_free: 0,
            ghosts: 0,
            progress: now,
            last_tokens: BTreeMap::new(),
            marks: BTreeMap::new(),
            least: BTreeMap::new(),
        }
    }

    /// An operator releases the lock.
    pub(crate) fn is_forced(&mut self, name: &Name) {
        self.least.remove(name);
    }

    pub(crate) fn fails(&mut self, breach: &'static str) {
        self.breach.get_or_insert(breach);
    }

    pub(crate) fn unless(&mut self, holds: bool, breach: &'static str) {
        if !holds {
            self.fails(breach);
        }
    }
}

impl World<'_> {
    fn is_free(&self, name: &Name) -> bool {
        self.documents
            .get(name)
            .is_none_or(|document| document.is_free(self.ms(), self.setup.margin))
    }

    /// Whether the caller could have what it wants now.
    fn could_have(&self, number: usize, caller: usize, waits: &Waits) -> bool {
        let names = &waits.names;
        match self.setup.caller(number, caller).wants {
            Wants::Permit(width) => self.held_permits(width) < width as usize,
            Wants::Lease => self.handle.as_ref().is_some_and(|handle| self.is_there(handle)),
            // A release that was refused is sent again for the next caller.
            Wants::Locks([_]) if self.setup.is_refused_once => {
                self.is_free(&names[0]) || self.left.refused == 0 && self.is_left(number, &names[0])
            }
            Wants::Locks([_]) => self.is_free(&names[0]),
            Wants::Locks(_) => {
                let is_free = |name: &Name| self.is_free(name);
                let may_have = |name: &Name| is_free(name) || self.is_left(number, name);
                names.iter().any(is_free) && names.iter().all(may_have)
            }
        }
    }

    /// Whether a claim of this process has the lock, and no caller has it.
    fn is_left(&self, number: usize, name: &Name) -> bool {
        let id = self.documents.get(name).and_then(|own| own.lock_id.text());
        let id = id.filter(|id| is_claim(id)).and_then(|id| Id::parse(id));
        let mut holds = self.processes[number].holds();
        let is_used = holds.any(|holds| holds.names.contains(name));
        id.is_some_and(|id| id.mark() == mark_of(number)) && !is_used
    }

    /// Whether a detached lease lasts.
    pub(crate) fn is_there(&self, handle: &Handle) -> bool {
        let is_there = |(name, id): &(Name, LockId)| {
            let document = self.documents.get(name);
            document.is_some_and(|own| own.lock_id.text() == Some(id)) && !self.is_free(name)
        };
        handle.leases.iter().all(is_there)
    }

    fn held_permits(&self, width: u32) -> usize {
        let number = |name: &Name| name.rsplit_once(SEPARATOR)?.1.parse().ok();
        let is_of_width = |name: &Name| number(name).is_some_and(|number: u32| number < width);
        let names = self.documents.keys().filter(|name| is_of_width(name));
        names.filter(|name| !self.is_free(name)).count()
    }

    /// Since when the caller could have it: the end of a lease lies in the past when its time has come.
    fn free_since(&self, waits: &Waits) -> Time {
        let end = |name: &Name| {
            let document = self.documents.get(name)?;
            let is_claim = document.lock_id.text().is_some_and(|id| is_claim(id));
            let margin = if is_claim { self.setup.margin } else { 0 };
            Some(document.expires_at.date()? + margin)
        };
        let ends = waits.names.iter().filter_map(end);
        let last = ends.max().map_or(self.now, |end| date(end).min(self.now));
        last.max(waits.begun)
    }

    /// Judges the situation after each step.
    pub(crate) fn judge_situation(&mut self) {
        self.judge_holders();
        self.judge_waits();
    }

    fn judge_holders(&mut self) {
        let mut holders: BTreeMap<&Name, usize> = BTreeMap::new();
        let (mut breach, mut width) = (None, 1);
        for (number, process) in self.alive() {
            for (caller, state) in process.callers.iter().enumerate() {
                let State::Holds(holds) = state else { continue };
                if holds.until <= self.now {
                    continue;
                }
                if !self.is_covered(holds) {
                    breach = Some("a holder relies on its lease for longer than the server keeps it");
                }
                let is_permit = matches!(self.setup.caller(number, caller).wants, Wants::Permit(_));
                if !is_permit && self.is_deceived(number, &holds.names) {
                    continue;
                }
                for (name, token) in holds.names.iter().zip(&holds.tokens) {
                    *holders.entry(name).or_default() += 1;
                    let last = self.judge.last_tokens.get(name);
                    if !is_permit && last.is_some_and(|last| last > token) {
                        breach = Some("a holder whose token is less than that of another one before it");
                    }
                }
                if let Wants::Permit(own) = self.setup.caller(number, caller).wants {
                    width = own as usize;
                }
            }
        }
        let is_deceived = |name: &Name| {
            let mut deceived = self.deceived.iter();
            deceived.any(|deceived| deceived.name != *name && is_of(&deceived.name, name))
        };
        // One of them may have a permit that an operator has released.
        let most = |name: &Name| width + usize::from(is_deceived(name));
        if holders.iter().any(|(name, number)| *number > most(name)) {
            breach = Some("too many holders");
        }
        if let Some(breach) = breach {
            self.judge.fails(breach);
        }
    }

    /// Whether the documents last at least for as long as the holder relies on them by a clock that is 1 % slow.
    fn is_covered(&self, holds: &Holds) -> bool {
        let is_covered = |(name, id, _): &(Name, LockId, i64)| {
            let own = self.documents.get(name);
            let own = own.filter(|own| !id.is_empty() && own.lock_id.text() == Some(id));
            let end = own.and_then(|own| own.expires_at.date());
            end.is_none_or(|end| (date(end) - self.now) * 100 >= (holds.until - self.now) * 101)
        };
        holds.claims.iter().all(is_covered)
    }

    /// Notes for each caller that waits whether it could have what it wants.
    pub(crate) fn judge_waits(&mut self) {
        for number in 0..self.processes.len() {
            for caller in 0..self.processes[number].callers.len() {
                let State::Waits(waits) = &self.processes[number].callers[caller] else {
                    continue;
                };
                let could_have = self.could_have(number, caller, waits);
                let since = || waits.could_since.unwrap_or_else(|| self.free_since(waits));
                // A hold under a transaction goes on in its process until that has ended.
                let is_kept = self.transactions_of(number);
                let since = could_have.then(|| if is_kept { self.now } else { since() });
                let has_mark = |name: &Name| {
                    let id = self.documents.get(name).and_then(|own| own.lock_id.text());
                    id.is_some_and(|id| is_mark(id)) && !self.is_free(name)
                };
                let has_mark = waits.names.iter().any(has_mark);
                let is_over = waits.deadline.is_some_and(|deadline| deadline < self.now);
                let is_changed =
                    (since, could_have, has_mark) != (waits.could_since, waits.was_free, waits.was_marked);
                if is_changed && let State::Waits(waits) = &mut self.process(number).callers[caller] {
                    waits.could_since = since;
                    waits.was_free &= could_have;
                    waits.was_marked |= has_mark;
                }
                self.judge.unless(!is_over, "a caller waits beyond its deadline");
            }
        }
    }

    /// Judges what has waited while time has passed.
    pub(crate) fn judge_gaps(&mut self) {
        let since = |waits: &Waits| waits.could_since;
        let free = self.alive().filter(|(number, _)| !self.transactions_of(*number));
        let all = free.flat_map(|(_, process)| process.waits());
        let first = all.filter_map(since).min();
        let gap = first.map_or(0, |since| self.now - since);
        self.judge.longest_free = self.judge.longest_free.max(gap);
        let is_soon = gap <= self.setup.most_free;
        self.judge
            .unless(is_soon, "a caller waits too long for what is free");
        let is_end = |own: &&Awaited| own.cell.role == Role::End;
        let ends = self
            .alive()
            .flat_map(|(_, process)| process.awaited.iter().filter(is_end));
        let first = ends.map(|own| own.since).min();
        let is_late = first.is_some_and(|since| self.now - since > self.setup.most_end);
        self.judge
            .unless(!is_late, "a caller waits too long for the end of its hold");
        let is_stuck = self.waits_any() && !self.holds_any() && self.now - self.judge.progress > STUCK;
        self.judge
            .unless(!is_stuck, "nothing happens for long, and a caller waits");
    }

    /// Judges what still waits when all that was due is done.
    pub(crate) fn judge_limits(&mut self) {
        let breach = self
            .waiting()
            .find_map(|(options, waits)| self.breach_of_wait(options, waits));
        if let Some(breach) = breach {
            self.judge.fails(breach);
        }
    }

    /// The callers that wait, with their options.
    fn waiting(&self) -> impl Iterator<Item = (&Caller, &Waits)> {
        self.alive().flat_map(move |(number, process)| {
            let callers = process.callers.iter().enumerate();
            callers.filter_map(move |(caller, state)| match state {
                State::Waits(waits) => Some((self.setup.caller(number, caller), waits)),
                _ => None,
            })
        })
    }

    /// Whether a call lasts too long, whatever is free.
    fn breach_of_wait(&self, options: &Caller, waits: &Waits) -> Option<&'static str> {
        // What has happened by then has its consequences by now.
        let by = Time(self.now.0 - self.setup.most_free);
        // A single attempt waits while a claim of its process is released that has its lock although its command has failed.
        let may_wait = !options.is_try || self.setup.faults.unclear > 0;
        if waits.begun >= by {
            None
        } else if waits.has_heard && !self.is_of_period(options, waits.begun, by.0 / MS) {
            Some("a caller waits beyond its period")
        } else {
            (!may_wait).then_some("a single attempt waits too long")
        }
    }

    /// Whether an operator has released one of these locks, and this process cannot know that yet.
    pub(crate) fn is_deceived(&self, number: usize, names: &[Name]) -> bool {
        self.deceived.as_ref().is_some_and(|deceived| {
            let is_released = |name: &Name| is_of(&deceived.name, name);
            deceived.process == number && names.iter().any(is_released)
        })
    }

    /// Whether no later caller than that of this token has had the lock.
    pub(crate) fn is_last_token(&self, name: &Name, token: i64) -> bool {
        let last = self.judge.last_tokens.get(name);
        last.is_none_or(|last| *last <= token)
    }

    /// A caller gets what it wants.
    pub(crate) fn judge_hold(&mut self, number: usize, caller: usize, begun: Time, holds: &Holds) {
        self.judge
            .unless(holds.until > self.now, "a hold is delivered whose lease is over");
        let options = self.setup.caller(number, caller);
        let is_too_long = holds.until - self.now > options.expiry * MS;
        self.judge
            .unless(!is_too_long, "a lease lasts for longer than its caller wants");
        if self.is_deceived(number, &holds.names) {
            return;
        }
        if matches!(options.wants, Wants::Permit(_)) {
            return;
        }
        let is_of_other = holds.claims.iter().any(|(_, id, _)| id.is_empty());
        self.judge
            .unless(!is_of_other, "a hold is delivered that another claim has");
        let now = self.ms();
        for (name, token) in holds.names.iter().zip(&holds.tokens) {
            let acquired_at = self.documents.get(name).and_then(|own| own.acquired_at.date());
            let is_kept = self.judge.least.get(name).is_some_and(|until| *until > now);
            self.judge
                .unless(!is_kept, "a hold begins during the minimum hold of another one");
            if let Some(at) = acquired_at.filter(|_| options.min_hold > 0) {
                self.judge.least.insert(name.clone(), at + options.min_hold);
            }
            let is_of_call = |at| self.is_of_period(options, begun, at);
            let is_of_call = acquired_at.is_none_or(is_of_call);
            self.judge
                .unless(is_of_call, "work begins in another period than its call");
            let last = self.judge.last_tokens.insert(name.clone(), *token);
            let is_risen = last.is_none_or(|last| last < *token);
            self.judge.unless(is_risen, "a token that is not greater");
            let is_done = self.judge.marks.get(name).is_some_and(|until| *until > now);
            self.judge.unless(!is_done, "work begins that is marked as done");
        }
    }

    /// Whether this time of the server lies in the period of a call that began then. Without delays it is that of its beginning.
    pub(crate) fn is_of_period(&self, options: &Caller, begun: Time, at: Ms) -> bool {
        match options.once {
            Some(OncePolicy::PerPeriod(length)) if self.setup.faults.slow == 0 => {
                (begun.0 / MS).div_euclid(length) == at.div_euclid(length)
            }
            _ => true,
        }
    }

    /// A holder is notified that its hold is lost.
    pub(crate) fn judge_loss(&mut self, number: usize, loss: LossReason, holds: &Holds) {
        let is_there = |(name, id, token): &(Name, LockId, i64)| {
            let document = self.documents.get(name).filter(|_| !self.is_free(name));
            document.is_some_and(|own| own.lock_id.text() == Some(id) && own.token.long() == Some(*token))
        };
        let is_lost = match loss {
            LossReason::Expired => holds.until <= self.now,
            // After a forced release a late copy of the claim may have acquired the lock again, with a token that the holder has not.
            LossReason::Gone => self.is_deceived(number, &holds.names) || !holds.claims.iter().all(is_there),
            LossReason::ShutDown => self.processes[number].phase == Phase::Closed,
        };
        self.judge.unless(is_lost, "a hold is called lost that is not");
        let is_renewed = loss != LossReason::Expired || self.is_being_renewed(number, holds);
        self.judge
            .unless(is_renewed, "a lease ends, and no renewal was sent for it");
    }

    /// Whether a renewal of this process has no reply yet, or need not have been sent. A command that has failed is under way no longer.
    pub(crate) fn is_being_renewed(&self, number: usize, holds: &Holds) -> bool {
        let faults = &self.setup.faults;
        let failed = faults.unclear
            + faults.blocked
            + faults.rejected
            + faults.refused
            + faults.refused_rows
            + faults.unsent;
        let mut callers = self.setup.processes[number].iter();
        let is_marked = callers.any(|caller| caller.once.is_some());
        let mut kept = self.kept.iter();
        let is_sent = kept.any(|kept| kept.process == number && kept.is_renewal);
        is_sent || failed > 0 || is_marked || holds.ends_by < Time::NEVER || self.transactions_of(number)
    }

    pub(crate) fn judge_extension(&mut self, end: Time, is_later: bool) {
        let is_over = is_later && end <= self.now;
        self.judge.unless(!is_over, "a lease is extended that is over");
    }

    /// A row changes a document.
    pub(crate) fn judge_change(&mut self, row: &Row, before: Option<&Document>, document: &Document) {
        let now = self.ms();
        let is_standing =
            |own: &Document| own.lock_id.text().is_some_and(|id| is_mark(id)) && !own.is_free(now, 0);
        let is_forced = matches!(row.then, Then::Force);
        let was_marked = before.is_some_and(is_standing);
        let is_claimed = matches!(row.then, Then::Claim { .. });
        let is_free = before.is_none_or(|own| own.is_free(now, self.setup.margin));
        let breach = "a lease is taken over before its margin is over";
        self.judge.unless(!is_claimed || is_free, breach);
        self.judge.unless(!was_marked || is_forced, "a mark is lost");
        let id = before.and_then(|before| Id::parse(before.lock_id.text()?));
        let is_of_handle = self.handle.as_ref().is_some_and(|handle| {
            !handle.is_taken && handle.leases.iter().any(|(name, _)| *name == row.name)
        });
        let ends_lease = matches!(row.then, Then::End { .. }) && id.is_some_and(Id::is_resumed);
        let breach = "a resumption that was given up has ended the lease";
        self.judge.unless(!(ends_lease && is_of_handle), breach);
        if is_standing(document)
            && let Some(until) = document.expires_at.date()
        {
            self.judge.marks.insert(row.name.clone(), until);
        }
    }

    /// Nothing happens any more.
    pub(crate) fn judge_end(&mut self) {
        self.judge.unless(!self.waits_any(), "a caller waits for ever");
        for number in 0..self.processes.len() {
            let process = &self.processes[number];
            let is_empty = process.core.is_empty();
            let (is_closed, is_idle) = (process.phase == Phase::Closed, process.is_idle);
            let is_awaited = !process.awaited.is_empty();
            if process.is_alive() {
                self.judge.unless(is_empty, "a core is not empty at the end");
                self.judge
                    .unless(!is_awaited, "a caller waits for ever for the end of its hold");
                let breach = "a process is never idle after its shutdown";
                self.judge.unless(!is_closed || is_idle, breach);
            }
        }
        let is_ghost = |name: &Name, document: &Document| {
            let id = document.lock_id.text().filter(|id| is_claim(id));
            // A lease that has ended for its holder ends soon after that at the server.
            let left = document.expires_at.date().map_or(0, |end| date(end) - self.now);
            !self.is_free(name) && left > ENDS_SOON && id.is_some_and(|id| self.has_no_user(id))
        };
        let documents = self.documents.iter();
        let ghosts = documents.filter(|(name, document)| is_ghost(name, document));
        self.judge.ghosts = ghosts.count() as u64;
    }

    /// Whether the id is that of a living process, which uses it no longer, or that of a detached lease whose handle nobody has.
    fn has_no_user(&self, id: &str) -> bool {
        match Id::parse(id) {
            Some(id) => self.alive().any(|(number, _)| id.mark() == mark_of(number)),
            None => self
                .handle
                .as_ref()
                .is_some_and(|handle| !handle.is_delivered && self.processes[handle.process].is_alive()),
        }
    }
}

//! A situation: processes, documents and the network between them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::clock::Kept;
use crate::core::{Effect, Ending, Event, Key, MS, Time, Wanted, span};
use crate::hash::Relative;
use crate::judge::Judge;
use crate::network::{Body, Cell, Message, Role};
use crate::process::{Awaited, Before, Holds, Phase, Process, State, Waits};
use crate::protocol::text::mark_of;
use crate::protocol::{Document, LockId, Ms, Name, Row, Then};
use crate::setup::{Caller, Faults, Finish, LATEST, Setup, Start, Wants};
use crate::timing::NO_REPLY;
use crate::transaction::Transaction;

/// A time in 1970 at which each run begins: a period of work that may succeed once in each ends 100 ms later.
const BEGIN: Time = Time(1_000_001_900 * MS);

/// For how long a detached lease lasts.
const TTL: Ms = 30_000;

#[derive(Clone)]
pub(crate) struct World<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) now: Time,
    pub(crate) documents: BTreeMap<Name, Document>,
    pub(crate) processes: Vec<Arc<Process>>,
    /// The fingerprints of the processes that have not changed since, at that time.
    prints: Vec<Option<(Time, u64)>>,
    pub(crate) network: Vec<Message>,
    pub(crate) left: Faults,
    /// The commands that the engines keep until then.
    pub(crate) kept: Vec<Kept>,
    pub(crate) handle: Option<Handle>,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) deceived: Option<Deceived>,
    /// The release that the server has refused, until its process learns that: the process, its command and its lock.
    pub(crate) refused: Option<(usize, Key, Name)>,
    /// Whether a caller leaves with the present event.
    pub(crate) is_leaving: bool,
    pub(crate) judge: Judge,
    /// The random bits of the next event.
    pub(crate) chance: u64,
}

/// An operator has released a lock, and the process that had it by this id cannot know that yet.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Deceived {
    /// The number of this forced release.
    pub(crate) number: u16,
    pub(crate) process: usize,
    pub(crate) name: Name,
    pub(crate) id: LockId,
}

/// The handle of a detached lease.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Handle {
    /// The process that has detached it.
    pub(crate) process: usize,
    /// How many there were before it: each has ids of its own.
    round: u16,
    pub(crate) leases: Vec<(Name, LockId)>,
    /// The caller that has detached it knows that.
    pub(crate) is_delivered: bool,
    /// A caller has resumed it.
    pub(crate) is_taken: bool,
}

impl Handle {
    /// Whether the document of this name has this id, by which the lease can be resumed.
    pub(crate) fn has(&self, name: &Name, id: &LockId) -> bool {
        self.is_delivered && self.leases.iter().any(|(own, lease)| (own, lease) == (name, id))
    }
}

impl<'a> World<'a> {
    pub(crate) fn new(setup: &'a Setup) -> Self {
        let process = |(number, callers): (usize, &Vec<Caller>)| {
            Arc::new(Process::new(number, callers.len(), setup, BEGIN))
        };
        let world = Self {
            setup,
            now: BEGIN,
            documents: BTreeMap::new(),
            processes: setup.processes.iter().enumerate().map(process).collect(),
            prints: vec![None; setup.processes.len()],
            network: Vec::new(),
            left: setup.faults,
            kept: Vec::new(),
            handle: None,
            transactions: Vec::new(),
            deceived: None,
            refused: None,
            is_leaving: false,
            judge: Judge::new(BEGIN),
            chance: 0,
        };
        world.started()
    }

    /// The seconds since the run began.
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    pub(crate) fn seconds(&self) -> f64 {
        (self.now - BEGIN) as f64 / 1e6
    }

    pub(crate) fn ms(&self) -> Ms {
        self.now.0 / MS
    }

    pub(crate) fn process(&mut self, number: usize) -> &mut Process {
        self.prints[number] = None;
        Arc::make_mut(&mut self.processes[number])
    }

    pub(crate) fn alive(&self) -> impl Iterator<Item = (usize, &Process)> {
        let all = self.processes.iter().map(AsRef::as_ref).enumerate();
        all.filter(|(_, process)| process.is_alive())
    }

    /// This is the command that is on its way for as long as it likes: the first claim, or the first renewal.
    pub(crate) fn is_late(&self, message: &Message) -> bool {
        let sent = match self.setup.start {
            Start::Plain | Start::Crashed => return false,
            Start::Renewing => BEGIN + self.setup.caller(0, 0).expiry / 3 * MS,
            Start::Copied | Start::Freed | Start::Left => BEGIN,
        };
        message.is_command() && message.sent == sent
    }

    /// Whether nothing is on its way but what may take as long as it likes.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_late = |message: &Message| self.is_late(message);
        let are_told = self.alive().all(|(_, process)| process.events.is_empty());
        are_told && self.network.iter().all(is_late) && self.transactions.iter().all(Transaction::is_over)
    }

    /// Whether a caller is not done with its hold.
    pub(crate) fn holds_any(&self) -> bool {
        let holds = |state: &State| matches!(state, State::Holds(_) | State::Lost(_));
        self.alive().any(|(_, process)| process.callers.iter().any(holds))
    }

    pub(crate) fn waits_any(&self) -> bool {
        self.alive().any(|(_, process)| process.waits().next().is_some())
    }

    /// An event for a core, and what follows from it.
    pub(crate) fn feed(&mut self, number: usize, event: Event<Cell>) -> Option<Key> {
        if !self.processes[number].is_alive() {
            return None;
        }
        let (now, chance) = (self.now, self.chance);
        let process = self.process(number);
        let waiter = process.handle(now, chance, event);
        let effects: Vec<_> = process.core.take_effects().collect();
        for effect in effects {
            self.perform(number, effect);
        }
        self.end_streams(number);
        waiter
    }

    /// Ends the change streams of a process that its core does not need any more.
    fn end_streams(&mut self, number: usize) {
        let core = &self.processes[number].core;
        let is_needed = |message: &Message| match message.body {
            Body::Watch(filter, _) => message.process != number || core.reads_stream(filter),
            _ => true,
        };
        self.network.retain(is_needed);
        let stream = self.processes[number].stream.as_ref();
        let has_ended = stream.is_some_and(|(filter, _)| !core.reads_stream(*filter));
        if has_ended {
            let process = self.process(number);
            process.stream = None;
            process.events.clear();
        }
    }

    fn perform(&mut self, number: usize, effect: Effect<Cell>) {
        match effect {
            Effect::Run(flight, rows, order, limit) => {
                self.ends_deception(&rows);
                self.judge_command(number, &rows);
                let mut hasher = Relative::new(self.now);
                format!("{rows:?}{order:?}").hash(&mut hasher);
                let body = Body::Rows(rows.into(), order, hasher.finish());
                self.send(number, flight, limit, body);
            }
            Effect::Look(flight, looks, limit) => {
                self.send(number, flight, limit, Body::Looks(looks.into()));
            }
            Effect::Notify(cell, notice) => self.notified(number, cell, notice),
            Effect::Watch(filter, names) => {
                let body = Body::Watch(filter, names.map(Into::into));
                self.post(number, Key::default(), LATEST, body);
            }
            Effect::Report(..) => {}
            Effect::Idle => {
                let process = self.process(number);
                process.is_idle = true;
                let is_busy = process.waits().next().is_some()
                    || process.holds().next().is_some()
                    || !process.awaited.is_empty();
                self.judge
                    .unless(!is_busy, "a process says that it is idle, and is not");
            }
        }
    }

    fn send(&mut self, number: usize, flight: Key, limit: i64, body: Body) {
        let (until, is_look) = (
            self.now + (limit + span(NO_REPLY)),
            matches!(body, Body::Looks(_)),
        );
        let renews = |row: &Row| matches!(row.then, Then::Renew { .. });
        let rows = match &body {
            Body::Rows(rows, ..) => Arc::clone(rows),
            _ => Arc::default(),
        };
        self.kept.push(Kept {
            process: number,
            flight,
            sent: self.now,
            until,
            is_look,
            is_renewal: rows.iter().any(renews),
            rows,
        });
        let latest = self.setup.latest.unwrap_or(limit + span(NO_REPLY) + limit);
        self.post(number, flight, latest, body);
    }

    fn post(&mut self, process: usize, flight: Key, latest: i64, body: Body) {
        self.network.push(Message {
            process,
            flight,
            sent: self.now,
            until: self.now + latest,
            too_old_for: 0,
            is_copy: false,
            body,
        });
    }

    /// A caller comes.
    pub(crate) fn call(&mut self, number: usize, caller: usize) {
        let options = *self.setup.caller(number, caller);
        let handle = self.handle.as_ref();
        let leases = handle.map_or_else(Vec::new, |handle| handle.leases.clone());
        let names = match options.wants {
            Wants::Lease => leases.iter().map(|(name, _)| name.clone()).collect(),
            _ => Arc::clone(self.setup.names(number, caller)),
        };
        let can_end_by_reply = options.is_try || options.once.is_some();
        for message in self.network.iter_mut().filter(|_| can_end_by_reply) {
            message.too_old_for |= u8::from(message.process == number) << caller;
        }
        let now = self.now;
        let process = self.process(number);
        let is_inside_hold = process.holds().next().is_some();
        process.rounds[caller] = process.rounds[caller].wrapping_add(1);
        let cell = process.cell(caller, Role::Call);
        process.callers[caller] = State::Waits(Waits {
            names: Arc::clone(&names),
            waiter: None,
            begun: now,
            deadline: options.limit.map(|limit| now + limit),
            could_since: None,
            was_free: true,
            has_heard: false,
            was_marked: false,
        });
        self.judge.progress = now;
        self.judge_waits();
        let join = options.join(is_inside_hold, cell);
        let wanted = match (options.wants, &names[..]) {
            (Wants::Lease, _) => Wanted::Leases(leases, TTL),
            (Wants::Permit(width), [name, ..]) => Wanted::Permit(name.clone(), width),
            (_, [name]) => Wanted::Lock(name.clone()),
            (_, names) => Wanted::All(names.to_vec()),
        };
        let waiter = self.feed(number, Event::Join(wanted, options.rules(), join));
        if let State::Waits(waits) = &mut self.process(number).callers[caller] {
            waits.waiter = waiter;
        }
    }

    /// A caller is gone: in a random run it may come again.
    pub(crate) fn goes(&mut self, number: usize, caller: usize) -> State {
        self.judge.progress = self.now;
        let gone = if self.setup.again {
            State::Outside
        } else {
            State::Gone
        };
        std::mem::replace(&mut self.process(number).callers[caller], gone)
    }

    /// The future of a caller is dropped that waits, whose transaction is under way, or that has resumed a lease and not taken it.
    pub(crate) fn leave(&mut self, number: usize, caller: usize) {
        // It is gone when its core says what follows. What was due before fails its call.
        self.is_leaving = true;
        let has_transaction = self.has_transaction(number, caller);
        match self.goes(number, caller) {
            State::Waits(Waits {
                waiter: Some(waiter), ..
            }) => {
                self.feed(number, Event::Leave(waiter));
            }
            State::Holds(holds) if has_transaction => {
                self.drop_transaction(number, caller, holds.hold);
                self.feed(number, Event::End(holds.hold, Ending::Release, None));
            }
            State::Holds(holds) => {
                if let Some(handle) = &mut self.handle {
                    handle.is_taken = false;
                }
                self.feed(number, Event::End(holds.hold, Ending::Untaken, None));
            }
            _ => {}
        }
        self.is_leaving = false;
    }

    /// A holder is done.
    pub(crate) fn end(&mut self, number: usize, caller: usize, finish: Finish) {
        if let Finish::Commit { marks } = finish {
            return self.begin_transaction(number, caller, marks);
        }
        let (hold, how, before, until) = match self.goes(number, caller) {
            State::Holds(holds) => {
                let how = match finish {
                    Finish::Done => Ending::Done,
                    Finish::Detach => self.detach(number, &holds),
                    _ => Ending::Release,
                };
                (holds.hold, how, self.before_end(number, &holds), holds.until)
            }
            State::Lost(hold) => (hold, Ending::Release, Before::Lost, self.now),
            _ => return,
        };
        let (cell, since) = (self.processes[number].cell(caller, Role::End), self.now);
        let handle = self.handle.as_ref().filter(|_| matches!(how, Ending::Detach(..)));
        let leases = handle.map_or_else(Vec::new, |handle| handle.leases.clone());
        self.process(number).awaited.push(Awaited {
            cell,
            since,
            before: Before::Held,
            until,
            leases,
        });
        self.feed(number, Event::End(hold, how, Some(cell)));
        // What is handed over at once cannot be known to be lost.
        let mut awaited = self.process(number).awaited.iter_mut();
        if let Some(own) = awaited.find(|own| own.cell == cell) {
            own.before = before;
        }
    }

    fn detach(&mut self, number: usize, holds: &Holds) -> Ending {
        let names = holds.claims.iter().map(|(name, ..)| name);
        let round = self.handle.as_ref().map_or(0, |handle| handle.round + 1);
        let leases = names.map(|name| (name.clone(), format!("h{name}#{round}").into()));
        let leases: Vec<(Name, LockId)> = leases.collect();
        let ids = leases.iter().map(|(_, id)| id.clone()).collect();
        self.handle = Some(Handle {
            process: number,
            round,
            leases,
            is_delivered: false,
            is_taken: false,
        });
        Ending::Detach(ids, TTL)
    }

    pub(crate) fn fingerprint(&mut self) -> u64 {
        let mut hasher = Relative::new(self.now);
        for (process, print) in self.processes.iter().zip(&mut self.prints) {
            let print = match *print {
                Some((at, print)) if at == self.now => print,
                _ => {
                    let mut hasher = Relative::new(self.now);
                    process.hash(&mut hasher);
                    print.insert((self.now, hasher.finish())).1
                }
            };
            print.hash(&mut hasher);
        }
        (&self.documents, &self.network, &self.left, &self.kept).hash(&mut hasher);
        (&self.handle, &self.transactions, &self.deceived, &self.judge).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether nothing is left to be done.
    pub(crate) fn is_over(&self) -> bool {
        let is_done = |process: &Process| {
            let mut callers = process.callers.iter();
            callers.all(|caller| matches!(caller, State::Gone)) && process.core.is_empty()
        };
        let are_done = self.alive().all(|(_, process)| is_done(process));
        are_done && self.network.is_empty() && self.transactions.iter().all(Transaction::is_over)
    }

    /// A process ends, as it is.
    pub(crate) fn crash(&mut self, number: usize) {
        self.judge.progress = self.now;
        let process = self.process(number);
        process.phase = Phase::Dead;
        process.callers.fill(State::Gone);
        process.awaited.clear();
        process.events.clear();
        self.kept.retain(|kept| kept.process != number);
        self.network
            .retain(|message| message.process != number || message.is_command());
        self.drop_transactions_of(number);
    }

    /// What has become of a hold, whether its holder knows that or not.
    fn before_end(&self, number: usize, holds: &Holds) -> Before {
        let is_replaced = |(name, id, token): &&(Name, LockId, i64)| {
            let has_id = |own: &LockId| own == id || **own == *mark_of(id);
            let document = self.documents.get(name);
            !document.is_some_and(|document| {
                document.lock_id.text().is_some_and(has_id) && document.token.long() == Some(*token)
            })
        };
        // What can be handed over at once cannot be known to be lost.
        let process = &self.processes[number];
        let is_wanted = |name: &Name| process.waits().any(|waits| waits.names.contains(name));
        let may_be_handed_over =
            |name: &Name| holds.has_committed || holds.names.len() > 1 && is_wanted(name);
        let replaced = holds.claims.iter().filter(is_replaced);
        let replaced = replaced.filter(|(name, id, _)| !id.is_empty() && !may_be_handed_over(name));
        let replaced: Vec<_> = replaced.map(|(name, _, token)| (name.clone(), *token)).collect();
        if replaced.is_empty() {
            Before::Held
        } else {
            Before::Replaced(replaced, holds.tokens.clone())
        }
    }
}

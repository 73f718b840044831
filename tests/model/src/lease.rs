//! One lock and the processes that want it: requests that are repeated, late, lost or overtaken, pauses, operators, the
//! TTL index, a peer that deletes documents, and elections between two members.
//!
//! A process may do its next step at any time or never, so a crash and a pause need no step of their own. The same is true
//! of messages: one that is never delivered is lost, and one that is delivered after others is late.

use stateright::{Model, Property};

use crate::protocol::{ClaimId, Document, LockId, Release, Reply, Rules, Time, Token, Tokens};

/// From when a holder counts its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountsFrom {
    /// From before the request was sent.
    Request,
    /// From the reply. Wrong: the lease began earlier.
    Reply,
}

/// How often something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Counts {
    /// A process begins to acquire the lock, with a claim of its own.
    pub(crate) claims: u8,
    /// An acquire request is sent again.
    pub(crate) copies: u8,
    /// A holder sends a renewal.
    pub(crate) renewals: u8,
    /// An operator releases the lock by force.
    pub(crate) forced: u8,
    /// The primary changes.
    pub(crate) elections: u8,
}

impl Counts {
    pub(crate) const fn claims(claims: u8) -> Self {
        Self {
            claims,
            copies: 0,
            renewals: 0,
            forced: 0,
            elections: 0,
        }
    }
}

/// Which steps are possible, and by which rules.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools)]
pub(crate) struct Lease {
    /// The rules of the processes that use the library.
    pub(crate) rules: Rules,
    /// The number of processes that use the library.
    pub(crate) processes: usize,
    /// Whether there is one more, which uses DistributedLock.MongoDB.
    pub(crate) has_peer: bool,
    /// How often each kind of step happens at most, in all processes together.
    pub(crate) most: Counts,
    /// The last step of the time.
    pub(crate) horizon: Time,
    /// Whether commands may take effect some time after the server has read its clock for them.
    pub(crate) late_effects: bool,
    /// After which time from its end the TTL index removes a document.
    pub(crate) retention: Option<Time>,
    /// Whether a document can be deleted within the step of the clock in which its lease began.
    pub(crate) deletes_at_once: bool,
    /// Whether the data refuses a write with a smaller token than it has seen.
    pub(crate) is_fenced: bool,
    /// From when a holder counts its lease.
    pub(crate) counts_from: CountsFrom,
    /// How far the clocks of the two members are ahead.
    pub(crate) clocks: [Time; 2],
    /// Whether a reply waits until a majority has the write.
    pub(crate) majority: bool,
}

impl Lease {
    /// Two processes, which acquire the lock so often together, and none of the other faults.
    pub(crate) const fn of(claims: u8) -> Self {
        Self {
            rules: Rules::with_expiry(2),
            processes: 2,
            has_peer: false,
            most: Counts::claims(claims),
            horizon: 5,
            late_effects: false,
            retention: None,
            deletes_at_once: false,
            is_fenced: true,
            counts_from: CountsFrom::Request,
            clocks: [0, 0],
            majority: true,
        }
    }

    fn rules_of(&self, command: &Command) -> Rules {
        if command.by_peer {
            Rules {
                takeover_margin: 0,
                release: Release::Deletes,
                tokens: Tokens::Count,
                ..self.rules
            }
        } else {
            self.rules
        }
    }

    /// Whether the command would delete the document within the step in which its lease began: tokens that follow the time
    /// need a later one.
    fn is_too_early(&self, state: &State, command: &Command) -> bool {
        let deletes =
            command.request == Request::Release && self.rules_of(command).release == Release::Deletes;
        let begun = state.stored.document.map(|document| document.acquired_at);
        deletes && !self.deletes_at_once && begun == Some(state.server_time(self))
    }

    /// Whether nothing but the holder itself ends its lease early.
    fn leases_last(&self) -> bool {
        self.most.forced == 0
    }
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    Acquiring(ClaimId),
    Holding {
        claim: ClaimId,
        /// Until when the holder relies on the lease, by its own clock.
        deadline: Time,
    },
}

/// A write to the guarded data, which may arrive at any time after the holder has looked whether it has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Write {
    token: Token,
    grant: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Process {
    pub(crate) phase: Phase,
    /// Whether it uses DistributedLock.MongoDB.
    is_peer: bool,
    /// A write of the holder that is on its way. Each holder sends one.
    write: Option<Write>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire,
    Renew,
    Release,
    /// An operator's; its claim means nothing.
    ForceRelease,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    /// On its way to the server.
    Sent,
    /// In the server, which has read its clock for it.
    Begun { now: Time },
    /// The reply is on its way.
    Replied {
        reply: Reply,
        /// The number of the grant that the document had then.
        grant: u8,
        /// The number of the write that a majority must have before the reply is sent.
        after: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command {
    pub(crate) request: Request,
    pub(crate) claim: ClaimId,
    by_peer: bool,
    /// When it was sent, by the clock of its process.
    pub(crate) sent: Time,
    pub(crate) stage: Stage,
}

/// What a member of the replica set has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Stored {
    pub(crate) document: Option<Document>,
    /// The number of the grant by which the present claim has the lock.
    grant: u8,
    /// The number of writes.
    version: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The time of the processes' clocks.
    pub(crate) now: Time,
    /// In an order that says nothing, so that states that differ only in it are one.
    pub(crate) processes: Vec<Process>,
    pub(crate) commands: Vec<Command>,
    /// What the primary has.
    pub(crate) stored: Stored,
    /// What a majority has.
    committed: Stored,
    primary: u8,
    done: Counts,
    /// The number of grants so far.
    grants: u8,
    /// The grant with the greatest number of which a process has learned, and its token.
    last_known: (u8, Token),
    /// The greatest token that the data has accepted, and the last grant.
    data: (Token, u8),
    /// A later grant has had a token that is not greater.
    has_token_fallen: bool,
    /// The data has accepted a write after one of a later holder.
    has_taken_stale_write: bool,
    /// The data has refused a write of the last holder.
    has_refused_last_holder: bool,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    TimePasses,
    /// The process with this place in the state sends a first request.
    Acquire {
        process: usize,
    },
    RepeatAcquire(ClaimId),
    GiveUp(ClaimId),
    Renew(ClaimId),
    Release(ClaimId),
    WriteArrives(Write),
    OperatorForcesRelease,
    Begins(Command),
    TakesEffect(Command),
    ReplyArrives(Command),
    TtlIndexDeletes,
    MajorityHasIt,
    Election,
}

impl Process {
    fn claim(&self) -> Option<ClaimId> {
        match self.phase {
            Phase::Idle => None,
            Phase::Acquiring(claim) | Phase::Holding { claim, .. } => Some(claim),
        }
    }
}

impl State {
    /// Whether this process relies on the lock.
    fn believes(&self, process: &Process) -> bool {
        matches!(process.phase, Phase::Holding { deadline, .. } if self.now < deadline)
    }

    fn believers(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| self.believes(process))
    }

    /// The process that waits for this claim or holds the lock by it.
    fn user(&mut self, claim: ClaimId) -> Option<&mut Process> {
        let uses = |process: &&mut Process| process.claim() == Some(claim);
        self.processes.iter_mut().find(uses)
    }

    fn server_time(&self, model: &Lease) -> Time {
        self.now + model.clocks[usize::from(self.primary)]
    }

    fn send(&mut self, request: Request, claim: ClaimId, by_peer: bool) {
        self.commands.push(Command {
            request,
            claim,
            by_peer,
            sent: self.now,
            stage: Stage::Sent,
        });
    }

    /// A process, or an operator, sends a command.
    fn send_next(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Acquire { process } => {
                let claim = ClaimId(self.done.claims);
                self.done.claims += 1;
                let at = &mut self.processes[process];
                at.phase = Phase::Acquiring(claim);
                let by_peer = at.is_peer;
                self.send(Request::Acquire, claim, by_peer);
            }
            Action::RepeatAcquire(claim) => {
                self.done.copies += 1;
                let by_peer = self.user(claim)?.is_peer;
                self.send(Request::Acquire, claim, by_peer);
            }
            Action::GiveUp(claim) | Action::Release(claim) => {
                let at = self.user(claim)?;
                at.phase = Phase::Idle;
                let by_peer = at.is_peer;
                self.send(Request::Release, claim, by_peer);
            }
            Action::Renew(claim) => {
                self.done.renewals += 1;
                let by_peer = self.user(claim)?.is_peer;
                self.send(Request::Renew, claim, by_peer);
            }
            Action::OperatorForcesRelease => {
                self.done.forced += 1;
                // An operator has no claim, and none has this number.
                self.send(Request::ForceRelease, ClaimId(u8::MAX), false);
            }
            _ => return None,
        }
        Some(())
    }

    fn take(&mut self, command: Command) -> bool {
        let found = self.commands.iter().position(|other| *other == command);
        found.map(|index| self.commands.remove(index)).is_some()
    }

    /// Runs a command that began at this time of the server, and puts its reply on the way.
    fn run(&mut self, model: &Lease, command: Command, now: Time) {
        let rules = model.rules_of(&command);
        let before = self.stored.document;
        let at = &mut self.stored.document;
        let found = |had_claim: bool| Reply::Acquired {
            last_token: 0,
            remaining: Time::from(had_claim),
        };
        let reply = match command.request {
            Request::Acquire => rules.claim(at, command.claim, now, 1),
            Request::Renew if rules.renew(at, command.claim, now) => found(true),
            Request::Renew => Reply::Held,
            Request::Release => {
                rules.release(at, command.claim, now);
                Reply::Held
            }
            Request::ForceRelease => {
                rules.force_release(at, now);
                Reply::Held
            }
        };
        if self.stored.document != before {
            self.stored.version += 1;
            if command.request == Request::Acquire {
                self.grants += 1;
                self.stored.grant = self.grants;
            }
        }
        if matches!(command.request, Request::Acquire | Request::Renew) {
            self.commands.push(Command {
                stage: Stage::Replied {
                    reply,
                    grant: self.stored.grant,
                    after: self.stored.version,
                },
                ..command
            });
        }
    }

    /// What a process does with a reply.
    fn learn(&mut self, model: &Lease, command: Command, reply: Reply, grant: u8) {
        let (now, rules) = (self.now, model.rules_of(&command));
        let from = match model.counts_from {
            CountsFrom::Request => command.sent,
            CountsFrom::Reply => now,
        };
        let Some(process) = self.user(command.claim) else {
            return;
        };
        match (command.request, reply, &mut process.phase) {
            (
                Request::Acquire,
                Reply::Acquired {
                    last_token,
                    remaining,
                },
                phase,
            ) => {
                let deadline = from + remaining.min(rules.expiry);
                // A reply that comes after the end of its lease grants nothing.
                if now < deadline {
                    *phase = Phase::Holding {
                        claim: command.claim,
                        deadline,
                    };
                    if !process.is_peer {
                        process.write = Some(Write {
                            token: last_token,
                            grant,
                        });
                        self.knows(grant, last_token);
                    }
                }
            }
            // A lease that is over stays over.
            (Request::Renew, Reply::Acquired { .. }, Phase::Holding { deadline, .. }) if now < *deadline => {
                *deadline = (*deadline).max(from + rules.expiry);
            }
            (Request::Renew, Reply::Held, phase) => *phase = Phase::Idle,
            _ => {}
        }
    }

    /// Notes that a process has learned of a grant.
    fn knows(&mut self, grant: u8, token: Token) {
        let (last_grant, last_token) = self.last_known;
        self.has_token_fallen |= (grant > last_grant) != (token > last_token);
        if grant > last_grant {
            self.last_known = (grant, token);
        }
    }

    fn write_arrives(&mut self, model: &Lease, write: Write) {
        let (seen, last_grant) = self.data;
        if model.is_fenced && write.token < seen {
            self.has_refused_last_holder |= write.grant == self.grants;
            return;
        }
        self.has_taken_stale_write |= write.grant < last_grant;
        self.data = (seen.max(write.token), last_grant.max(write.grant));
    }

    /// Forgets what can have no effect any more, and orders the rest: equal situations are then equal states.
    fn tidy(&mut self) {
        let is_pending = |command: &&Command| {
            command.request == Request::Acquire && !matches!(command.stage, Stage::Replied { .. })
        };
        let pending = self.commands.iter().filter(is_pending);
        let pending = pending.fold(0_u64, |pending, command| pending | 1 << command.claim.0);
        let may_acquire = |claim: ClaimId| pending & 1 << claim.0 != 0;
        let id_of = |stored: Stored| stored.document.map(|document| document.lock_id);
        let (stored, committed) = (id_of(self.stored), id_of(self.committed));
        let processes = &self.processes;
        self.commands.retain(|command| {
            let is_awaited = processes.iter().any(|process| match process.phase {
                Phase::Acquiring(claim) => command.request == Request::Acquire && claim == command.claim,
                Phase::Holding { claim, .. } => command.request == Request::Renew && claim == command.claim,
                Phase::Idle => false,
            });
            match (command.stage, command.request) {
                (Stage::Replied { .. }, _) => is_awaited,
                (_, Request::Acquire | Request::ForceRelease) => true,
                (_, Request::Renew | Request::Release) => {
                    let id = Some(LockId::Claim(command.claim));
                    is_awaited || stored == id || committed == id || may_acquire(command.claim)
                }
            }
        });
        self.commands.sort_unstable();
        self.processes.sort_unstable();
    }
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let process = |is_peer| Process {
            phase: Phase::Idle,
            is_peer,
            write: None,
        };
        let mut processes = vec![process(false); self.processes];
        processes.extend(self.has_peer.then(|| process(true)));
        vec![State {
            // Tokens and times before the first step are greater than 0.
            now: 1,
            processes,
            commands: Vec::new(),
            stored: Stored::default(),
            committed: Stored::default(),
            primary: 0,
            done: Counts::claims(0),
            grants: 0,
            last_known: (0, 0),
            data: (0, 0),
            has_token_fallen: false,
            has_taken_stale_write: false,
            has_refused_last_holder: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.horizon {
            actions.push(Action::TimePasses);
        }
        for (process, at) in state.processes.iter().enumerate() {
            // Two that are alike have the same steps.
            if process > 0 && state.processes[process - 1] == *at {
                continue;
            }
            match at.phase {
                Phase::Acquiring(claim) => {
                    if state.done.copies < self.most.copies {
                        actions.push(Action::RepeatAcquire(claim));
                    }
                    actions.push(Action::GiveUp(claim));
                }
                Phase::Holding { claim, .. } if state.believes(at) => {
                    if state.done.renewals < self.most.renewals {
                        actions.push(Action::Renew(claim));
                    }
                    actions.push(Action::Release(claim));
                }
                Phase::Idle | Phase::Holding { .. } => {
                    if state.done.claims < self.most.claims {
                        actions.push(Action::Acquire { process });
                    }
                }
            }
            actions.extend(at.write.map(Action::WriteArrives));
        }
        if state.done.forced < self.most.forced {
            actions.push(Action::OperatorForcesRelease);
        }
        for command in &state.commands {
            match command.stage {
                Stage::Sent | Stage::Begun { .. } => {
                    if self.late_effects && command.stage == Stage::Sent {
                        actions.push(Action::Begins(*command));
                    }
                    if !self.is_too_early(state, command) {
                        actions.push(Action::TakesEffect(*command));
                    }
                }
                Stage::Replied { after, .. } => {
                    if !self.majority || self.most.elections == 0 || state.committed.version >= after {
                        actions.push(Action::ReplyArrives(*command));
                    }
                }
            }
        }
        let has_ended = |retention: Time| {
            let document = state.stored.document;
            document.is_some_and(|document| document.expires_at + retention <= state.server_time(self))
        };
        if self.retention.is_some_and(has_ended) {
            actions.push(Action::TtlIndexDeletes);
        }
        if self.most.elections > 0 && state.committed.version < state.stored.version {
            actions.push(Action::MajorityHasIt);
        }
        if state.done.elections < self.most.elections {
            actions.push(Action::Election);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::TimePasses => {
                state.now += 1;
                let now = state.server_time(self);
                // The server ends a command at its limit.
                state.commands.retain(
                    |command| !matches!(command.stage, Stage::Begun { now: begun } if begun + self.rules.late_command < now),
                );
            }
            Action::Acquire { .. }
            | Action::RepeatAcquire(_)
            | Action::GiveUp(_)
            | Action::Renew(_)
            | Action::Release(_)
            | Action::OperatorForcesRelease => state.send_next(action)?,
            Action::WriteArrives(write) => {
                let arrived = |process: &&mut Process| process.write == Some(write);
                state.processes.iter_mut().find(arrived)?.write = None;
                state.write_arrives(self, write);
            }
            Action::Begins(command) => {
                if !state.take(command) {
                    return None;
                }
                let now = state.server_time(self);
                state.commands.push(Command {
                    stage: Stage::Begun { now },
                    ..command
                });
            }
            Action::TakesEffect(command) => {
                if !state.take(command) {
                    return None;
                }
                let now = match command.stage {
                    Stage::Begun { now } => now,
                    Stage::Sent | Stage::Replied { .. } => state.server_time(self),
                };
                state.run(self, command, now);
            }
            Action::ReplyArrives(command) => {
                let Stage::Replied { reply, grant, .. } = command.stage else {
                    return None;
                };
                if !state.take(command) {
                    return None;
                }
                state.learn(self, command, reply, grant);
            }
            Action::TtlIndexDeletes => {
                state.stored.document = None;
                state.stored.version += 1;
            }
            Action::MajorityHasIt => state.committed = state.stored,
            Action::Election => {
                state.done.elections += 1;
                state.primary = 1 - state.primary;
                // What no majority has is rolled back, and the connections to the old primary are closed.
                state.stored = state.committed;
                let kept = state.committed.version;
                state.commands.retain(|command| match command.stage {
                    Stage::Sent => true,
                    Stage::Begun { .. } => false,
                    Stage::Replied { after, .. } => !self.majority || after <= kept,
                });
            }
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                "no two processes rely on the lock",
                |model: &Self, state: &State| !model.leases_last() || state.believers().count() <= 1,
            ),
            Property::always(
                "a lease lasts for as long as its holder relies on it",
                |model, state: &State| {
                    let (now, document) = (state.server_time(model), state.stored.document);
                    let lasts = |process: &Process| {
                        document.is_some_and(|document| {
                            Some(document.lock_id) == process.claim().map(LockId::Claim)
                                && document.expires_at > now
                        })
                    };
                    !model.leases_last() || model.most.elections > 0 || state.believers().all(lasts)
                },
            ),
            Property::always("a later holder has a greater token", |_, state: &State| {
                !state.has_token_fallen
            }),
            Property::always(
                "fenced writes take effect in the order of the holders",
                |_, state: &State| !state.has_taken_stale_write,
            ),
            Property::always("the data never refuses the last holder", |_, state: &State| {
                !state.has_refused_last_holder
            }),
            Property::sometimes("both of two processes have had the lock", |_, state: &State| {
                state.last_known.0 >= 2
            }),
            Property::sometimes(
                "a write is late until another process has the lock",
                |_, state: &State| {
                    let is_late =
                        |process: &Process| process.write.is_some_and(|write| write.grant < state.grants);
                    state.processes.iter().any(is_late)
                },
            ),
        ];
        if self.most.elections > 0 {
            properties.push(Property::sometimes(
                "an election rolls a write back",
                |_, state: &State| state.done.elections > 0 && state.grants > state.stored.grant,
            ));
        }
        properties
    }
}

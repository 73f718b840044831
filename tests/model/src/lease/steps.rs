//! The steps that are possible in a state, and what must hold in all states.

use stateright::Model;

use super::{
    Action, Command, Counts, IN_ORDER, Lease, ONE_HOLDER, Phase, Process, RISES, Stage, State, Stored, Write,
};
use crate::protocol::{LockId, Time};

type Property = stateright::Property<Lease>;

/// Takes a command from those that are on their way: it arrives, or it is lost. `None` if it is not there.
fn take(commands: &mut Vec<Command>, command: &Command) -> Option<Command> {
    let index = commands.iter().position(|other| other == command)?;
    Some(commands.remove(index))
}

/// The processes with their places, and of those that are alike the first one only: they have the same steps.
fn unlike(processes: &[Process]) -> impl Iterator<Item = (usize, &Process)> {
    let is_first =
        move |(place, process): &(usize, &Process)| *place == 0 || processes[place - 1] != **process;
    processes.iter().enumerate().filter(is_first)
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
            done: Counts::default(),
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
        for (process, at) in unlike(&state.processes) {
            match at.phase {
                Phase::Acquiring(claim) => {
                    actions.push(Action::GiveUp(claim));
                }
                Phase::Holding { claim, .. } if state.believes(at) => {
                    actions.push(Action::Release(claim));
                }
                Phase::Idle | Phase::Holding { .. } => {
                    if state.done.claims < self.most.claims {
                        actions.push(Action::Acquire(process));
                    }
                }
            }
            actions.extend(at.write.map(Action::WriteArrives));
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
            Action::Acquire(_) | Action::GiveUp(_) | Action::Release(_) => {
                state.send_next(action)?;
            }
            Action::WriteArrives(write) => {
                let arrived = |process: &&mut Process| process.write == Some(write);
                state.processes.iter_mut().find(arrived)?.write = None;
                state.write_arrives(self, write);
            }
            Action::Begins(command) => {
                let (command, now) = (take(&mut state.commands, &command)?, state.server_time(self));
                state.commands.push(Command {
                    stage: Stage::Begun { now },
                    ..command
                });
            }
            Action::TakesEffect(command) => {
                let command = take(&mut state.commands, &command)?;
                let now = match command.stage {
                    Stage::Begun { now } => now,
                    Stage::Sent | Stage::Replied { .. } => state.server_time(self),
                };
                state.run(self, command, now);
            }
            Action::ReplyArrives(command) => {
                let command = take(&mut state.commands, &command)?;
                if let Stage::Replied { reply, grant, .. } = command.stage {
                    state.learn(self, command, reply, grant);
                }
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

    fn properties(&self) -> Vec<Property> {
        let mut properties = vec![
            Property::always(ONE_HOLDER, |_, state| state.believers().count() <= 1),
            Property::always(
                "a lease lasts for as long as its holder relies on it",
                |model, state| {
                    let (now, document) = (state.server_time(model), state.stored.document);
                    let lasts = |process: &Process| {
                        document.is_some_and(|document| {
                            Some(document.lock_id) == process.claim().map(LockId::Claim)
                                && document.expires_at > now
                        })
                    };
                    model.most.elections > 0 || state.believers().all(lasts)
                },
            ),
            Property::always(RISES, |_, state| !state.has_token_fallen),
            Property::always(IN_ORDER, |_, state| !state.has_taken_stale_write),
            Property::always("the data never refuses the last holder", |_, state| {
                !state.has_refused_last_holder
            }),
            Property::sometimes("both of two processes have had the lock", |_, state| {
                state.last_known.0 >= 2
            }),
            Property::sometimes(
                "a write is late until another process has the lock",
                |_, state| {
                    let is_late = |write: Write| write.grant < state.grants;
                    let mut processes = state.processes.iter();
                    processes.any(|process| process.write.is_some_and(is_late))
                },
            ),
        ];
        if self.most.elections > 0 {
            properties.push(Property::sometimes(
                "an election rolls a write back",
                |_, state| state.done.elections > 0 && state.grants > state.stored.grant,
            ));
        }
        properties
    }
}

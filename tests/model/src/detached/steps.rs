//! The steps that are possible in a state, and what must hold in all states.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::{
    Action, Changed, Command, Counts, Detached, Hold, Name, Origin, Owed, Phase, Request, Stage, State, Wrongs,
};
use crate::protocol::{ClaimId, Document, LockId, TOKENS_A_STEP};

impl Detached {
    fn process_actions(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let (done, most) = (state.done, self.most);
        let phase = state.processes[process];
        match phase {
            Phase::Idle => {
                if done.claims < most.claims {
                    actions.push(Action::Acquire { process });
                }
                if done.resumes < most.resumes {
                    let resumes = |handle| Action::Resume { process, handle };
                    actions.extend(state.handles().map(resumes));
                }
            }
            Phase::Holding { hold, .. } => {
                if done.detaches < most.detaches {
                    actions.push(Action::Detach { process });
                }
                if let (Changed::GivesBackDelivered, Origin::Resumed(handle)) =
                    (self.changed, state.about(hold).origin)
                {
                    actions.push(Action::GiveBackDelivered { hold, handle });
                }
                actions.push(Action::Release { process });
            }
            Phase::Acquiring(_) | Phase::Detaching { .. } | Phase::Resuming { .. } => {
                if done.copies < most.copies {
                    actions.push(Action::Repeat { process });
                }
                actions.push(Action::GiveUp { process });
            }
        }
        if let Phase::Holding { hold, .. } | Phase::Detaching { old: hold, .. } = phase
            && done.renewals < most.renewals
        {
            actions.push(Action::Renew(hold));
        }
    }

    fn command_actions(&self, command: &Command, actions: &mut Vec<Action>) {
        match command.stage {
            Stage::Parts(_) => {
                if self.late_effects && command.begun.is_none() {
                    actions.push(Action::Begins(*command));
                }
                actions.push(Action::TakesEffect(*command));
            }
            Stage::Reads => actions.push(Action::Reads(*command)),
            Stage::Replied(_) => actions.push(Action::ReplyArrives(*command)),
        }
    }
}

impl State {
    /// The handles that other processes may have.
    fn handles(&self) -> impl Iterator<Item = Hold> {
        let is_handle = |hold: &Hold| matches!(self.about(*hold).origin, Origin::Detached(_));
        (0..).take(self.holds.len()).map(Hold).filter(is_handle)
    }

    /// Whether the lock changes only if a process begins something.
    fn is_still(&self) -> bool {
        let waits = |phase: &Phase| phase.request().is_some();
        self.commands.is_empty() && self.owed.is_empty() && !self.processes.iter().any(waits)
    }

    /// Whether a part of the lock has the id of this command, after it was given up.
    fn is_late(&self, owed: &Owed) -> bool {
        self.names.iter().any(|name| name.hold == Some(owed.request().of()))
    }

    fn begin(&mut self, model: &Detached, process: usize, action: Action) {
        let phase = match (action, self.processes[process]) {
            (Action::Acquire { .. }, _) => {
                self.done.claims += 1;
                Phase::Acquiring(self.new_hold(model, Origin::Claim))
            }
            (Action::Resume { handle, .. }, _) => {
                self.done.resumes += 1;
                let detaches = |phase: &Phase| matches!(phase, Phase::Detaching { handle: new, .. } if *new == handle);
                self.is_disturbed |= self.processes.iter().any(detaches);
                let hold = self.new_hold(model, Origin::Resumed(handle));
                Phase::Resuming { handle, hold }
            }
            (_, Phase::Holding { hold: old, .. }) => {
                self.done.detaches += 1;
                let handle = self.new_hold(model, Origin::Detached(old));
                Phase::Detaching { old, handle }
            }
            (_, phase) => phase,
        };
        self.processes[process] = phase;
        if let Some(request) = phase.request() {
            self.send(request);
        }
    }
}

impl Detached {
    /// What must be possible within the bounds.
    fn possible(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::sometimes("a handle is resumed", |_, state: &State| {
            state.handles().any(|handle| state.about(handle).won == 1)
        })];
        if self.most.resumes > 1 {
            properties.push(Property::sometimes(
                "two requests that resume one handle are on their way",
                |_, state: &State| {
                    let waits = |command: &&Command| matches!(command.request, Request::Resume { .. });
                    let holds = state.commands.iter().filter(waits).map(|command| command.request.makes());
                    holds.collect::<BTreeSet<_>>().len() > 1
                },
            ));
            properties.push(Property::sometimes(
                "a resumption that was given up has the lock while another is tried",
                |_, state: &State| {
                    let is_late = |owed: &Owed| matches!(owed, Owed::GiveBack { .. }) && state.is_late(owed);
                    let tries = |phase: &Phase| matches!(phase, Phase::Resuming { .. });
                    state.owed.iter().any(is_late) && state.processes.iter().any(tries)
                },
            ));
        }
        properties.push(Property::sometimes(
            "a lease is detached after its process has given up",
            |_, state: &State| {
                let is_late = |owed: &Owed| match owed {
                    Owed::Release(hold) => state.handles().any(|handle| handle == *hold) && state.is_late(owed),
                    Owed::GiveBack { .. } => false,
                };
                state.owed.iter().any(is_late)
            },
        ));
        if self.most.claims > 0 {
            properties.push(Property::sometimes("another process acquires the lock after its lease", |_, state: &State| {
                let is_other = |hold: Hold| hold != Hold::FIRST && state.about(hold).origin == Origin::Claim;
                state.names.iter().filter_map(|name| name.hold).any(is_other)
            }));
        }
        properties
    }
}

impl Model for Detached {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            now: 1,
            processes: vec![Phase::Idle; self.processes],
            names: Vec::new(),
            commands: Vec::new(),
            owed: Vec::new(),
            holds: Vec::new(),
            done: Counts::default(),
            is_disturbed: false,
            wrongs: Wrongs::default(),
        };
        let hold = state.new_hold(self, Origin::Claim);
        let deadline = 1 + self.rules.expiry;
        let document = Document {
            lock_id: LockId::Claim(ClaimId(0)),
            acquired_at: 1,
            expires_at: deadline,
            token: TOKENS_A_STEP,
        };
        let name = Name {
            document: Some(document),
            hold: Some(hold),
            granted: 0,
        };
        state.names = vec![name; self.names];
        state.processes[0] = Phase::Holding { hold, deadline };
        state.tidy(self);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.horizon {
            actions.push(Action::TimePasses);
        }
        for process in 0..state.processes.len() {
            // Two that are alike have the same steps.
            if process == 0 || state.processes[process - 1] != state.processes[process] {
                self.process_actions(state, process, actions);
            }
        }
        if state.done.extends < self.most.extends {
            actions.extend(state.handles().map(Action::ExtendHandle));
        }
        if state.done.releases < self.most.releases {
            actions.extend(state.handles().map(Action::ReleaseHandle));
        }
        for (number, command) in state.commands.iter().enumerate() {
            // The same is true of two copies.
            if number == 0 || state.commands[number - 1] != *command {
                self.command_actions(command, actions);
            }
        }
        let is_sent = |owed: &Owed| state.commands.iter().any(|other| other.request == owed.request());
        actions.extend(state.owed.iter().copied().filter(|owed| !is_sent(owed)).map(Action::SendAgain));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::TimePasses => {
                state.now += 1;
                let (now, limit) = (state.now, self.rules.late_command);
                // The server ends a command at its limit.
                let runs = |begun: Option<_>| begun.is_none_or(|begun| now <= begun + limit);
                state.commands.retain(|command| runs(command.begun));
            }
            Action::Acquire { process } | Action::Resume { process, .. } | Action::Detach { process } => {
                state.begin(self, process, action);
            }
            Action::Repeat { process } => {
                state.done.copies += 1;
                let request = state.processes[process].request()?;
                state.send(request);
            }
            Action::GiveUp { process } | Action::Release { process } => state.give_up(self, process),
            Action::Renew(hold) => {
                state.done.renewals += 1;
                state.send(Request::Renew(hold));
            }
            Action::ExtendHandle(handle) => {
                state.done.extends += 1;
                state.send(Request::Extend(handle));
            }
            Action::ReleaseHandle(handle) => {
                state.done.releases += 1;
                state.release_handle(handle);
            }
            Action::SendAgain(owed) => state.send(owed.request()),
            Action::GiveBackDelivered { hold, handle } => {
                state.send(Request::GiveBack { hold, handle });
            }
            Action::Begins(command) => {
                let begun = Some(state.now);
                state.take(command).then(|| state.commands.push(Command { begun, ..command }))?;
            }
            Action::TakesEffect(command) => {
                state.take(command).then(|| state.run(self, command))?;
            }
            Action::Reads(command) => {
                let stage = Stage::Replied(state.read(command.request, state.now));
                state.take(command).then(|| state.commands.push(Command { stage, ..command }))?;
            }
            Action::ReplyArrives(command) => {
                let Stage::Replied(reply) = command.stage else {
                    return None;
                };
                state.take(command).then(|| state.learn(self, command, reply))?;
            }
        }
        state.tidy(self);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = self.possible();
        properties.extend([
            Property::always("no two processes rely on the lock", |_, state: &State| {
                let relies = |phase: &&Phase| matches!(phase, Phase::Holding { .. });
                state.processes.iter().filter(relies).count() <= 1
            }),
            Property::always("a later hold has a greater token", |_, state: &State| {
                !state.wrongs.token_fell
            }),
            Property::always("a command for one hold changes no other", |_, state: &State| {
                !state.wrongs.changed_other
            }),
            Property::always(
                "a detached lease lasts as long as it was granted",
                |_, state: &State| !state.wrongs.cut,
            ),
            Property::always(
                "nobody else acquires a lock whose detached lease runs",
                |_, state: &State| !state.wrongs.acquired_early,
            ),
            Property::always("one process at most resumes a handle", |_, state: &State| {
                state.holds.iter().all(|hold| hold.won <= 1)
            }),
            Property::always(
                "one of those that resume a handle gets it",
                |_, state: &State| {
                    let is_decided = !state.processes.iter().any(|phase| matches!(phase, Phase::Resuming { .. }));
                    let was_resumed = |handle: &Hold| {
                        state.holds.iter().any(|hold| hold.origin == Origin::Resumed(*handle))
                    };
                    state.is_disturbed
                        || !is_decided
                        || state.handles().filter(was_resumed).all(|handle| state.about(handle).won == 1)
                },
            ),
            Property::always("no lease is kept by a resumption that nobody has", |_, state: &State| {
                let is_kept = |hold: Hold| {
                    let about = state.about(hold);
                    matches!(about.origin, Origin::Resumed(_)) && about.won == 0
                };
                !state.is_still() || !state.names.iter().filter_map(|name| name.hold).any(is_kept)
            }),
            Property::always(
                "a process releases no lease that others can resume",
                |_, state: &State| !state.wrongs.lost_lease,
            ),
        ]);
        properties
    }
}

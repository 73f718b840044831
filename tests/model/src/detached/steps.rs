//! The steps that are possible in a state, and what must hold in all states.

use stateright::Model;

use super::{
    Action, Changed, Command, Detached, Hold, Name, Origin, Owed, Phase, Property, Request, Stage, State,
    Wrongs,
};
use crate::protocol::ClaimId;
use crate::shared::{Counts, take, unlike};

impl Detached {
    fn process_actions(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let (done, most) = (state.done, self.most);
        let phase = state.processes[process];
        match phase {
            Phase::Idle => {
                if done.claims < most.claims {
                    actions.push(Action::Acquire(process));
                }
                if done.resumes < most.resumes {
                    actions.extend(state.handles().map(|handle| Action::Resume(process, handle)));
                }
            }
            Phase::Holding { hold, .. } => {
                if done.detaches < most.detaches {
                    actions.push(Action::Detach(process));
                }
                if let Origin::Resumed(handle) = state.about(hold).origin
                    && self.changed == Changed::GivesBackDelivered
                {
                    actions.push(Action::GiveBack(Owed::GiveBack { hold, handle }));
                }
                actions.push(Action::Release(process));
            }
            Phase::Acquiring(_) | Phase::Detaching { .. } | Phase::Resuming { .. } => {
                if done.copies < most.copies {
                    actions.push(Action::Repeat(process));
                }
                actions.push(Action::GiveUp(process));
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
    pub(super) fn handles(&self) -> impl Iterator<Item = Hold> {
        let is_handle = |hold: &Hold| matches!(self.about(*hold).origin, Origin::Detached(_));
        (0..).take(self.holds.len()).map(Hold).filter(is_handle)
    }

    fn begin(&mut self, model: &Detached, process: usize, action: Action) {
        let phase = match (action, self.processes[process]) {
            (Action::Acquire(_), _) => {
                self.done.claims += 1;
                Phase::Acquiring(self.new_hold(model, Origin::Claim))
            }
            (Action::Resume(_, handle), _) => {
                self.done.resumes += 1;
                let detaches =
                    |phase: &Phase| matches!(phase, Phase::Detaching { handle: new, .. } if *new == handle);
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

    /// A command is begun by the server, takes effect, or is answered.
    fn go_on(&mut self, model: &Detached, command: Command, action: Action) -> Option<()> {
        let (command, now) = (take(&mut self.commands, &command)?, self.now);
        match (action, command.stage) {
            (Action::Begins(_), _) => self.commands.push(Command {
                begun: Some(now),
                ..command
            }),
            (Action::Reads(_), _) => {
                let stage = Stage::Replied(self.read(command.request, now));
                self.commands.push(Command { stage, ..command });
            }
            (_, Stage::Replied(reply)) => self.learn(model, command, reply),
            _ => self.run(model, command),
        }
        Some(())
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
        let mut name = Name {
            document: None,
            hold: None,
            granted: 0,
        };
        if self.is_held {
            let hold = state.new_hold(self, Origin::Claim);
            let deadline = 1 + self.rules.expiry;
            self.rules.claim(&mut name.document, ClaimId(0), 1, 1);
            name.hold = Some(hold);
            state.holds[0].tokens = [name.document.map_or(0, |document| document.token); 2];
            state.processes[0] = Phase::Holding { hold, deadline };
        }
        state.names = vec![name; self.names];
        state.tidy(self);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.horizon {
            actions.push(Action::TimePasses);
        }
        for (process, _) in unlike(&state.processes) {
            self.process_actions(state, process, actions);
        }
        if state.done.extends < self.most.extends {
            actions.extend(state.handles().map(Action::ExtendHandle));
        }
        if state.done.releases < self.most.releases {
            actions.extend(state.handles().map(Action::ReleaseHandle));
        }
        for (_, command) in unlike(&state.commands) {
            self.command_actions(command, actions);
        }
        let is_sent = |owed: &Owed| state.commands.iter().any(|other| other.request == owed.request());
        let unsent = state.owed.iter().copied().filter(|owed| !is_sent(owed));
        actions.extend(unsent.map(Action::SendAgain));
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
            Action::Acquire(process) | Action::Resume(process, _) | Action::Detach(process) => {
                state.begin(self, process, action);
            }
            Action::Repeat(process) => {
                state.done.copies += 1;
                let request = state.processes[process].request()?;
                state.send(request);
            }
            Action::GiveUp(process) | Action::Release(process) => state.give_up(self, process),
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
            Action::SendAgain(owed) | Action::GiveBack(owed) => state.send(owed.request()),
            Action::Begins(command)
            | Action::TakesEffect(command)
            | Action::Reads(command)
            | Action::ReplyArrives(command) => state.go_on(self, command, action)?,
        }
        state.tidy(self);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property> {
        let mut properties = self.possible();
        properties.extend(Self::safe());
        properties.extend(Self::live());
        properties
    }
}

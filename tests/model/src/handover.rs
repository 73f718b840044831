//! Hand-over in one process: several callers use one claim one after the other, and no command says so. Each hold needs a
//! token of its own, which is greater than every earlier one, also than those of another process.

use stateright::Model;

use crate::protocol::{ClaimId, Document, Reply, Rules, Time, Token};

type Property = stateright::Property<Handover>;

/// The number of tokens that a claim reserves.
const RESERVED: Token = 3;

/// Which token the document has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The last of the reserved ones.
    Last,
    /// The first of them. Wrong: another process gets one of those that are handed over.
    First,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Handover {
    pub(crate) rules: Rules,
    pub(crate) processes: usize,
    pub(crate) claims: u8,
    pub(crate) horizon: Time,
    pub(crate) stored: Stored,
}

/// The claim of a process, and the token of its present hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claimed {
    claim: ClaimId,
    token: Token,
    last_token: Token,
    deadline: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: Time,
    document: Option<Document>,
    processes: Vec<Option<Claimed>>,
    claims: u8,
    /// The token of the hold that began last.
    last: Token,
    handovers: u8,
    has_token_fallen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    TimePasses,
    Acquire { process: usize },
    Renew { process: usize },
    HandOver { process: usize },
    Release { process: usize },
}

impl State {
    fn begins(&mut self, token: Token) {
        self.has_token_fallen |= token <= self.last;
        self.last = token;
    }
}

impl Model for Handover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 1,
            document: None,
            processes: vec![None; self.processes],
            claims: 0,
            last: 0,
            handovers: 0,
            has_token_fallen: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.horizon {
            actions.push(Action::TimePasses);
        }
        for (process, at) in state.processes.iter().enumerate() {
            match at {
                Some(held) if state.now < held.deadline => {
                    if held.token < held.last_token {
                        actions.push(Action::HandOver { process });
                    }
                    actions.push(Action::Renew { process });
                    actions.push(Action::Release { process });
                }
                _ if state.claims < self.claims => actions.push(Action::Acquire { process }),
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::TimePasses => state.now += 1,
            Action::Acquire { process } => {
                let claim = ClaimId(state.claims);
                state.claims += 1;
                let reserved = match self.stored {
                    Stored::Last => RESERVED,
                    Stored::First => 1,
                };
                let reply = self.rules.claim(&mut state.document, claim, now, reserved);
                let Reply::Acquired { token: stored, .. } = reply else {
                    return None;
                };
                let token = stored - (reserved - 1);
                state.processes[process] = Some(Claimed {
                    claim,
                    token,
                    last_token: token + RESERVED - 1,
                    deadline: now + self.rules.expiry,
                });
                state.begins(token);
            }
            Action::Renew { process } => {
                let held = state.processes[process].as_mut()?;
                self.rules.renew(&mut state.document, held.claim, now);
                held.deadline = now + self.rules.expiry;
            }
            Action::HandOver { process } => {
                let held = state.processes[process].as_mut()?;
                held.token += 1;
                let token = held.token;
                state.handovers += 1;
                state.begins(token);
            }
            Action::Release { process } => {
                let held = state.processes[process].take()?;
                self.rules.release(&mut state.document, held.claim, now);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            Property::always("each hold has a greater token than those before", |_, state| {
                !state.has_token_fallen
            }),
            Property::sometimes(
                "a lock is handed over, and then acquired by another",
                |_, state| state.handovers >= 2 && state.claims >= 2,
            ),
        ]
    }
}

//! A semaphore: each permit is a document of its own, and a claim names one of them.

use stateright::{Model, Property};

use crate::protocol::ClaimId;

/// Which permits a request can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// The one that the claim names: a copy of the request finds its claim there.
    ItsOwn,
    /// Any that is free. Wrong: a copy takes a second one.
    AnyFree,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Permits {
    /// How many permits there are.
    pub(crate) number: usize,
    pub(crate) processes: usize,
    /// How many claims the processes make together.
    pub(crate) claims: u8,
    /// How many copies of requests they send together, when a reply is late.
    pub(crate) copies: u8,
    pub(crate) takes: Takes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    Asking { claim: ClaimId, permit: usize },
    Holding { claim: ClaimId, permit: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Request { claim: ClaimId, permit: usize },
    Reply { claim: ClaimId, permit: Option<usize> },
    Release { claim: ClaimId, permit: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    permits: Vec<Option<ClaimId>>,
    processes: Vec<Phase>,
    messages: Vec<Message>,
    /// The claims that were given up, with their permits: they are released again while a copy may take effect.
    given_up: Vec<(ClaimId, usize)>,
    claims: u8,
    copies: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Ask { process: usize, permit: usize },
    RepeatRequest { process: usize },
    Release { process: usize },
    Arrives(Message),
    IsLost(Message),
    ReleaseAgain { claim: ClaimId, permit: usize },
}

impl State {
    fn is_requested(&self, claim: ClaimId) -> bool {
        self.messages
            .iter()
            .any(|message| matches!(message, Message::Request { claim: other, .. } if *other == claim))
    }

    fn has_permit(&self, claim: ClaimId) -> bool {
        self.permits.contains(&Some(claim))
    }

    fn used(&self) -> usize {
        let holds = |phase: &&Phase| matches!(phase, Phase::Holding { .. });
        self.processes.iter().filter(holds).count()
    }

    fn give_up(&mut self, claim: ClaimId, permit: usize) {
        self.messages.push(Message::Release { claim, permit });
        self.given_up.push((claim, permit));
    }

    fn arrives(&mut self, model: &Permits, message: Message) {
        match message {
            Message::Request { claim, permit } => {
                let own = self.permits.iter().position(|at| *at == Some(claim));
                let free = match model.takes {
                    Takes::ItsOwn => own.is_none().then_some(permit),
                    // The query is "a free permit", and a permit that is held does not match it.
                    Takes::AnyFree => self.permits.iter().position(Option::is_none),
                };
                let free = free.filter(|permit| self.permits[*permit].is_none());
                if let Some(free) = free {
                    self.permits[free] = Some(claim);
                }
                let permit = free.or(own);
                self.messages.push(Message::Reply { claim, permit });
            }
            Message::Reply { claim, permit } => {
                let asks = |phase: &&mut Phase| matches!(phase, Phase::Asking { claim: other, .. } if *other == claim);
                if let Some(phase) = self.processes.iter_mut().find(asks) {
                    let asked = *phase;
                    *phase = match permit {
                        Some(permit) => Phase::Holding { claim, permit },
                        None => Phase::Idle,
                    };
                    // A copy may still take the permit for the claim.
                    if let (None, Phase::Asking { permit, .. }) = (permit, asked) {
                        self.given_up.push((claim, permit));
                    }
                }
            }
            Message::Release { claim, permit } => {
                if self.permits[permit] == Some(claim) {
                    self.permits[permit] = None;
                }
            }
        }
    }

    fn tidy(&mut self) {
        let given_up = std::mem::take(&mut self.given_up);
        self.given_up = given_up
            .into_iter()
            .filter(|(claim, _)| self.is_requested(*claim) || self.has_permit(*claim))
            .collect();
        let processes = self.processes.clone();
        let (permits, requested) = (self.permits.clone(), self.messages.clone());
        self.messages.retain(|message| match message {
            Message::Request { .. } => true,
            Message::Reply { claim, .. } => {
                let asks = |phase: &Phase| matches!(phase, Phase::Asking { claim: other, .. } if other == claim);
                processes.iter().any(asks)
            }
            Message::Release { claim, .. } => {
                let is_request =
                    |other: &Message| matches!(other, Message::Request { claim: other, .. } if other == claim);
                permits.contains(&Some(*claim)) || requested.iter().any(is_request)
            }
        });
        self.given_up.sort_unstable();
        self.given_up.dedup();
        self.messages.sort_unstable();
        self.processes.sort_unstable();
    }
}

impl Model for Permits {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            permits: vec![None; self.number],
            processes: vec![Phase::Idle; self.processes],
            messages: Vec::new(),
            given_up: Vec::new(),
            claims: 0,
            copies: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (process, phase) in state.processes.iter().enumerate() {
            if process > 0 && state.processes[process - 1] == *phase {
                continue;
            }
            match phase {
                Phase::Idle if state.claims < self.claims => {
                    actions.extend((0..self.number).map(|permit| Action::Ask { process, permit }));
                }
                Phase::Asking { .. } if state.copies < self.copies => {
                    actions.push(Action::RepeatRequest { process });
                }
                Phase::Asking { .. } | Phase::Holding { .. } => actions.push(Action::Release { process }),
                Phase::Idle => {}
            }
        }
        for message in &state.messages {
            actions.push(Action::Arrives(*message));
            if !matches!(message, Message::Request { .. }) {
                actions.push(Action::IsLost(*message));
            }
        }
        for (claim, permit) in &state.given_up {
            let release = Message::Release {
                claim: *claim,
                permit: *permit,
            };
            if !state.messages.contains(&release) {
                actions.push(Action::ReleaseAgain {
                    claim: *claim,
                    permit: *permit,
                });
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask { process, permit } => {
                let claim = ClaimId(state.claims);
                state.claims += 1;
                state.processes[process] = Phase::Asking { claim, permit };
                state.messages.push(Message::Request { claim, permit });
            }
            Action::RepeatRequest { process } => {
                let Phase::Asking { claim, permit } = state.processes[process] else {
                    return None;
                };
                state.copies += 1;
                state.messages.push(Message::Request { claim, permit });
            }
            Action::Release { process } => {
                let (Phase::Asking { claim, permit } | Phase::Holding { claim, permit }) =
                    state.processes[process]
                else {
                    return None;
                };
                state.processes[process] = Phase::Idle;
                state.give_up(claim, permit);
            }
            Action::Arrives(message) | Action::IsLost(message) => {
                let at = state.messages.iter().position(|other| *other == message)?;
                state.messages.remove(at);
                if action == Action::Arrives(message) {
                    state.arrives(self, message);
                }
            }
            Action::ReleaseAgain { claim, permit } => state.messages.push(Message::Release { claim, permit }),
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no more processes hold permits than there are",
                |model: &Self, state: &State| state.used() <= model.number,
            ),
            Property::always("a claim has one permit at most", |_, state: &State| {
                let mut claims: Vec<_> = state.permits.iter().flatten().collect();
                let all = claims.len();
                claims.sort_unstable();
                claims.dedup();
                claims.len() == all
            }),
            Property::always("a holder of a permit has it at the server", |_, state: &State| {
                state.processes.iter().all(|phase| match phase {
                    Phase::Holding { claim, permit } => state.permits[*permit] == Some(*claim),
                    Phase::Idle | Phase::Asking { .. } => true,
                })
            }),
            Property::always("no unused permit stays taken", |model: &Self, state: &State| {
                let is_still = state.messages.is_empty()
                    && state.given_up.is_empty()
                    && state.processes.iter().all(|phase| *phase == Phase::Idle);
                !is_still || state.claims < model.claims || state.permits.iter().all(Option::is_none)
            }),
            Property::sometimes("all permits are held", |model: &Self, state: &State| {
                state.used() == model.number
            }),
            Property::sometimes(
                "a copy takes a permit for a claim that was given up",
                |_, state: &State| {
                    state
                        .given_up
                        .iter()
                        .any(|(claim, _)| state.has_permit(*claim) && !state.is_requested(*claim))
                },
            ),
        ]
    }
}

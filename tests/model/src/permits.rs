//! A semaphore: each permit is a document of its own, and a claim names one of them.

use stateright::Model;

use crate::protocol::ClaimId;
use crate::shared::{Counts, take, unlike};

type Property = stateright::Property<Permits>;

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
    /// How often each kind of step happens at most. A copy is sent when a reply is late.
    pub(crate) most: Counts,
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
    done: Counts,
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

impl Phase {
    /// The permit that it asks for with this claim.
    fn asked_permit(self, by: ClaimId) -> Option<usize> {
        match self {
            Self::Asking { claim, permit } if claim == by => Some(permit),
            _ => None,
        }
    }
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
                let asks = |phase: &Phase| phase.asked_permit(claim).is_some();
                let Some(process) = self.processes.iter().position(asks) else {
                    return;
                };
                let asked = self.processes[process].asked_permit(claim);
                self.processes[process] = match permit {
                    Some(permit) => Phase::Holding { claim, permit },
                    None => Phase::Idle,
                };
                // A copy may still take the permit for the claim.
                let may_take = asked.filter(|_| permit.is_none());
                self.given_up.extend(may_take.map(|permit| (claim, permit)));
            }
            Message::Release { claim, permit } => {
                if self.permits[permit] == Some(claim) {
                    self.permits[permit] = None;
                }
            }
        }
    }

    fn tidy(&mut self) {
        let before = self.clone();
        let may_take = |claim: ClaimId| before.is_requested(claim) || before.has_permit(claim);
        self.given_up.retain(|(claim, _)| may_take(*claim));
        self.messages.retain(|message| match message {
            Message::Request { .. } => true,
            Message::Reply { claim, .. } => {
                let asks = |phase: &Phase| phase.asked_permit(*claim).is_some();
                before.processes.iter().any(asks)
            }
            Message::Release { claim, .. } => may_take(*claim),
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
            done: Counts::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (process, phase) in unlike(&state.processes) {
            match phase {
                Phase::Idle if state.done.claims < self.most.claims => {
                    actions.extend((0..self.number).map(|permit| Action::Ask { process, permit }));
                }
                Phase::Asking { .. } if state.done.copies < self.most.copies => {
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
        for &(claim, permit) in &state.given_up {
            if !state.messages.contains(&Message::Release { claim, permit }) {
                actions.push(Action::ReleaseAgain { claim, permit });
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask { process, permit } => {
                let claim = ClaimId(state.done.claims);
                state.done.claims += 1;
                state.processes[process] = Phase::Asking { claim, permit };
                state.messages.push(Message::Request { claim, permit });
            }
            Action::RepeatRequest { process } => {
                let Phase::Asking { claim, permit } = state.processes[process] else {
                    return None;
                };
                state.done.copies += 1;
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
                take(&mut state.messages, &message)?;
                if action == Action::Arrives(message) {
                    state.arrives(self, message);
                }
            }
            Action::ReleaseAgain { claim, permit } => state.messages.push(Message::Release { claim, permit }),
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            Property::always("no more processes hold permits than there are", |model, state| {
                state.used() <= model.number
            }),
            Property::always("a claim has one permit at most", |_, state| {
                let mut claims: Vec<_> = state.permits.iter().flatten().collect();
                claims.sort_unstable();
                claims.is_sorted_by(|claim, next| claim < next)
            }),
            Property::always("a holder of a permit has it at the server", |_, state| {
                state.processes.iter().all(|phase| match phase {
                    Phase::Holding { claim, permit } => state.permits[*permit] == Some(*claim),
                    Phase::Idle | Phase::Asking { .. } => true,
                })
            }),
            Property::always("no unused permit stays taken", |model, state| {
                let is_still = state.messages.is_empty()
                    && state.given_up.is_empty()
                    && state.processes.iter().all(|phase| *phase == Phase::Idle);
                !is_still
                    || state.done.claims < model.most.claims
                    || state.permits.iter().all(Option::is_none)
            }),
            Property::sometimes("all permits are held", |model, state| {
                state.used() == model.number
            }),
            Property::sometimes(
                "a copy takes a permit for a claim that was given up",
                |_, state| {
                    let is_taken = |claim| state.has_permit(claim) && !state.is_requested(claim);
                    state.given_up.iter().any(|(claim, _)| is_taken(*claim))
                },
            ),
        ]
    }
}

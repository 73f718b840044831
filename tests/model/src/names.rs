//! Several locks, all or nothing: a call claims all names with one command, whose parts take effect one after the other,
//! and gives back what it has got if one of them is held. After some rounds it acquires them one by one. Leases do not end
//! here, so what is not given back stays taken.

use stateright::Model;

type Property = stateright::Property<Names>;

/// The number of names.
const NAMES: usize = 2;

/// In which order the names are acquired one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// In the order of the names.
    OfNames,
    /// As the caller has written them. Wrong: two callers can wait for each other.
    OfCaller,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) processes: usize,
    /// After how many rounds the names are acquired one by one.
    pub(crate) rounds: u8,
    /// How many first copies of commands arrive only after a second one.
    pub(crate) late_copies: u8,
    pub(crate) order: Order,
    /// Whether a claim that was given up is released again while a copy of its command may take effect.
    pub(crate) releases_late: bool,
}

/// A claim on all names: the process, and the number of its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetId {
    process: usize,
    round: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The part of the command with this number takes effect next.
    Claiming(usize),
    /// The query reads the document of this number, and all before it have the claim.
    Reading(usize),
    /// The claims are given back, and the call waits for this name.
    Waiting(usize),
    /// This number of names was acquired one by one.
    OneByOne(usize),
    Holding,
    Served,
}

/// A command that has been sent again, and arrives late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LateCopy {
    id: SetId,
    next: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    names: [Option<SetId>; NAMES],
    processes: Vec<(Phase, u8)>,
    copies: Vec<LateCopy>,
    copied: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    ClaimsNext { process: usize },
    CommandIsSentAgain { process: usize },
    LateCopyClaimsNext(LateCopy),
    ReadsNext { process: usize },
    BeginsRound { process: usize },
    AcquiresNext { process: usize },
    ReleasesAll { process: usize },
    ReleasesLate { name: usize },
}

impl Names {
    fn id(state: &State, process: usize) -> SetId {
        SetId {
            process,
            round: state.processes[process].1,
        }
    }

    /// The names in the order in which this process acquires them one by one.
    fn name(&self, process: usize, place: usize) -> usize {
        match self.order {
            Order::OfNames => place,
            Order::OfCaller => (place + process) % NAMES,
        }
    }

    /// Whether a claim in a document is used, or will be given back by its process.
    fn is_live(state: &State, id: SetId) -> bool {
        let (phase, round) = state.processes[id.process];
        round == id.round && !matches!(phase, Phase::Waiting(_) | Phase::Served)
    }

    fn all_served(state: &State) -> bool {
        state.processes.iter().all(|(phase, _)| *phase == Phase::Served)
    }
}

impl State {
    fn release(&mut self, id: SetId) {
        for name in &mut self.names {
            if *name == Some(id) {
                *name = None;
            }
        }
    }
}

impl Model for Names {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            names: [None; NAMES],
            processes: vec![(Phase::Claiming(0), 0); self.processes],
            copies: Vec::new(),
            copied: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (process, (phase, _)) in state.processes.iter().enumerate() {
            match *phase {
                Phase::Claiming(_) => {
                    actions.push(Action::ClaimsNext { process });
                    if state.copied < self.late_copies {
                        actions.push(Action::CommandIsSentAgain { process });
                    }
                }
                Phase::Reading(_) => actions.push(Action::ReadsNext { process }),
                Phase::Waiting(name) if state.names[name].is_none() => {
                    actions.push(Action::BeginsRound { process });
                }
                Phase::OneByOne(got) if state.names[self.name(process, got)].is_none() => {
                    actions.push(Action::AcquiresNext { process });
                }
                Phase::Holding => actions.push(Action::ReleasesAll { process }),
                Phase::Waiting(_) | Phase::OneByOne(_) | Phase::Served => {}
            }
        }
        actions.extend(state.copies.iter().copied().map(Action::LateCopyClaimsNext));
        if self.releases_late {
            let is_unused = |name: &usize| state.names[*name].is_some_and(|id| !Self::is_live(state, id));
            let unused = (0..NAMES).filter(is_unused);
            actions.extend(unused.map(|name| Action::ReleasesLate { name }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::ClaimsNext { process } => {
                let id = Self::id(&state, process);
                let Phase::Claiming(next) = state.processes[process].0 else {
                    return None;
                };
                state.names[next].get_or_insert(id);
                state.processes[process].0 = if next + 1 < NAMES {
                    Phase::Claiming(next + 1)
                } else {
                    Phase::Reading(0)
                };
            }
            Action::CommandIsSentAgain { process } => {
                state.copied += 1;
                let id = Self::id(&state, process);
                state.copies.push(LateCopy { id, next: 0 });
            }
            Action::LateCopyClaimsNext(copy) => {
                let at = state.copies.iter().position(|other| *other == copy)?;
                state.names[copy.next].get_or_insert(copy.id);
                state.copies[at].next += 1;
                if state.copies[at].next == NAMES {
                    state.copies.remove(at);
                }
            }
            Action::ReadsNext { process } => {
                let id = Self::id(&state, process);
                let Phase::Reading(next) = state.processes[process].0 else {
                    return None;
                };
                state.processes[process].0 = if state.names[next] != Some(id) {
                    state.release(id);
                    Phase::Waiting(next)
                } else if next + 1 < NAMES {
                    Phase::Reading(next + 1)
                } else {
                    Phase::Holding
                };
            }
            Action::BeginsRound { process } => {
                let round = state.processes[process].1 + 1;
                let phase = if round < self.rounds {
                    Phase::Claiming(0)
                } else {
                    Phase::OneByOne(0)
                };
                state.processes[process] = (phase, round);
            }
            Action::AcquiresNext { process } => {
                let id = Self::id(&state, process);
                let Phase::OneByOne(got) = state.processes[process].0 else {
                    return None;
                };
                state.names[self.name(process, got)] = Some(id);
                state.processes[process].0 = if got + 1 < NAMES {
                    Phase::OneByOne(got + 1)
                } else {
                    Phase::Holding
                };
            }
            Action::ReleasesAll { process } => {
                let id = Self::id(&state, process);
                state.release(id);
                state.processes[process].0 = Phase::Served;
            }
            Action::ReleasesLate { name } => state.names[name] = None,
        }
        state.copies.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            Property::always("two processes never rely on one name", |_, state| {
                let holds = |(phase, _): &&(Phase, u8)| *phase == Phase::Holding;
                state.processes.iter().filter(holds).count() <= 1
            }),
            Property::always("a holder that relies on the names has all of them", |_, state| {
                (0..state.processes.len()).all(|process| {
                    let id = Some(Self::id(state, process));
                    state.processes[process].0 != Phase::Holding || state.names.iter().all(|name| *name == id)
                })
            }),
            Property::always("every call gets its locks in the end", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || Self::all_served(state)
            }),
            Property::sometimes(
                "each of two calls has got a part",
                |_, state| matches!(state.names, [Some(first), Some(second)] if first.process != second.process),
            ),
            Property::sometimes("names are acquired one by one", |_, state| {
                let mut phases = state.processes.iter().map(|(phase, _)| *phase);
                phases.any(|phase| phase == Phase::OneByOne(1))
            }),
            Property::sometimes("all calls have had their locks", |_, state| {
                Self::all_served(state)
            }),
        ]
    }
}

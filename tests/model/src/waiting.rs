//! Waiters of several processes: a release wakes them by an event, and an event can be lost. Requests are prompt here, and
//! what is due is done before the time passes, except by a process that has crashed.

use stateright::Model;

use crate::protocol::Time;

type Property = stateright::Property<Waiting>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) waiters: usize,
    /// How long a lease lasts; no process renews it here.
    pub(crate) expiry: Time,
    /// After which pause a waiter that hears of nothing sends another request; `None`: it waits for events only. Wrong.
    pub(crate) poll: Option<Time>,
    /// Whether a waiter listens before its first request. Wrong otherwise: it misses the release between the two.
    pub(crate) listens_first: bool,
    /// The acquire timeout.
    pub(crate) timeout: Time,
    pub(crate) lost_events: u8,
    pub(crate) crashes: u8,
    pub(crate) horizon: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// It has not called yet.
    Absent,
    /// It sends a request next.
    Asks,
    /// It has learned that the lock is held, and listens from now on.
    Turns,
    /// It pauses until this time, if it is not woken.
    Pauses(Time),
    Holds,
    Released,
    /// Its call has returned that the lock is busy.
    Told,
    Crashed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Waiter {
    phase: Phase,
    listens: bool,
    /// Whether an event has come that it has not acted on.
    was_woken: bool,
    deadline: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: Time,
    /// When the lease ends that the document has.
    expires_at: Time,
    /// Since when the lock is free.
    free_since: Option<Time>,
    waiters: Vec<Waiter>,
    lost_events: u8,
    crashes: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    TimePasses,
    Calls(usize),
    SendsRequest(usize),
    Listens(usize),
    Wakes(usize),
    GivesUp(usize),
    Releases {
        waiter: usize,
        loses_event_of: Option<usize>,
    },
    Crashes(usize),
}

impl Waiting {
    /// The steps that the waiter does before the time passes.
    fn due(state: &State, number: usize) -> Option<Action> {
        let waiter = &state.waiters[number];
        match waiter.phase {
            Phase::Asks => Some(Action::SendsRequest(number)),
            Phase::Turns => Some(Action::Listens(number)),
            Phase::Pauses(_) if waiter.deadline <= state.now => Some(Action::GivesUp(number)),
            Phase::Pauses(until) if waiter.was_woken || until <= state.now => Some(Action::Wakes(number)),
            _ => None,
        }
    }

    /// The longest time for which a lock is free although a process waits for it.
    fn longest_gap(&self) -> Time {
        self.poll.unwrap_or(1)
    }
}

impl State {
    fn is_free(&self) -> bool {
        self.expires_at <= self.now
    }

    fn any(&self, phase: Phase) -> bool {
        self.waiters.iter().any(|waiter| waiter.phase == phase)
    }

    fn waits(waiter: Waiter) -> bool {
        matches!(waiter.phase, Phase::Asks | Phase::Turns | Phase::Pauses(_))
    }

    /// Wakes those that listen, except the one whose event is lost.
    fn release(&mut self, lost: Option<usize>) {
        self.expires_at = self.now;
        self.free_since = Some(self.now);
        for (number, waiter) in self.waiters.iter_mut().enumerate() {
            waiter.was_woken |= waiter.listens && lost != Some(number);
        }
    }
}

impl Model for Waiting {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let waiter = Waiter {
            phase: Phase::Absent,
            listens: false,
            was_woken: false,
            deadline: 0,
        };
        vec![State {
            now: 0,
            expires_at: 0,
            free_since: Some(0),
            waiters: vec![waiter; self.waiters],
            lost_events: 0,
            crashes: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let numbers = 0..self.waiters;
        let due: Vec<Action> = numbers.filter_map(|number| Self::due(state, number)).collect();
        if due.is_empty() && state.now < self.horizon {
            actions.push(Action::TimePasses);
        }
        actions.extend(due);
        for (number, waiter) in state.waiters.iter().enumerate() {
            if waiter.phase == Phase::Absent && state.now + self.timeout <= self.horizon {
                actions.push(Action::Calls(number));
            }
            if waiter.phase == Phase::Holds && !state.is_free() {
                let release = |loses_event_of| Action::Releases {
                    waiter: number,
                    loses_event_of,
                };
                actions.push(release(None));
                if state.lost_events < self.lost_events {
                    let listens = |other: &usize| state.waiters[*other].listens;
                    let losses = (0..self.waiters).filter(listens);
                    actions.extend(losses.map(|other| release(Some(other))));
                }
            }
            if state.crashes < self.crashes && (State::waits(*waiter) || waiter.phase == Phase::Holds) {
                actions.push(Action::Crashes(number));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let (now, is_free) = (state.now, state.is_free());
        let remaining = state.expires_at - now;
        match action {
            Action::TimePasses => {
                state.now += 1;
                if state.is_free() && state.free_since.is_none() {
                    state.free_since = Some(state.now);
                }
            }
            Action::Calls(number) => {
                let waiter = &mut state.waiters[number];
                waiter.phase = Phase::Asks;
                waiter.listens = self.listens_first;
                waiter.deadline = now + self.timeout;
            }
            Action::SendsRequest(number) => {
                if is_free {
                    state.expires_at = now + self.expiry;
                    state.free_since = None;
                }
                let waiter = &mut state.waiters[number];
                waiter.phase = if is_free { Phase::Holds } else { Phase::Turns };
            }
            Action::Listens(number) => {
                let waiter = &mut state.waiters[number];
                waiter.listens = true;
                // The reply has said how long the lease lasts, and no clock of the waiter is needed for that.
                let pause = self
                    .poll
                    .map_or(Time::MAX - now, |poll| poll.min(remaining.max(1)));
                waiter.phase = Phase::Pauses(now + pause);
            }
            Action::Wakes(number) => {
                let waiter = &mut state.waiters[number];
                waiter.was_woken = false;
                waiter.phase = Phase::Asks;
            }
            Action::GivesUp(number) => state.waiters[number].phase = Phase::Told,
            Action::Releases {
                waiter,
                loses_event_of,
            } => {
                state.lost_events += u8::from(loses_event_of.is_some());
                state.waiters[waiter].phase = Phase::Released;
                state.release(loses_event_of);
            }
            Action::Crashes(number) => {
                state.crashes += 1;
                state.waiters[number].phase = Phase::Crashed;
            }
        }
        for waiter in &mut state.waiters {
            if !State::waits(*waiter) {
                waiter.listens = false;
                waiter.was_woken = false;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            Property::always("a lock that is awaited is not free for long", |model, state| {
                // A waiter that called later has sent its request at once.
                let is_missed = |waiter: &Waiter| matches!(waiter.phase, Phase::Pauses(_));
                state
                    .free_since
                    .is_none_or(|since| state.now <= since + model.longest_gap())
                    || !state.waiters.iter().any(is_missed)
            }),
            Property::always("every live call has ended at its deadline", |_, state| {
                let is_late = |waiter: &Waiter| State::waits(*waiter) && state.now > waiter.deadline;
                !state.waiters.iter().any(is_late)
            }),
            Property::sometimes("a call gets the lock after a lost event", |_, state| {
                state.lost_events > 0 && state.any(Phase::Holds)
            }),
            Property::sometimes(
                "a call gets the lock of a process that has crashed",
                |_, state| state.any(Phase::Crashed) && state.any(Phase::Released),
            ),
            Property::sometimes("a call is told that the lock is busy", |_, state| {
                state.any(Phase::Told)
            }),
        ]
    }
}

//! Work that may succeed only once in a period: the claim is replaced by a mark that lasts until the period ends.

use stateright::{Model, Property};

use crate::protocol::{ClaimId, Document, LockId, Reply, Rules, Time, mark, own};

/// How a process finds out that its mark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The reply has the document as it was before: a copy of the request finds the mark of the first one.
    Mark,
    /// The reply says only whether the claim was found. Wrong: a copy does not find it.
    MarkByClaim,
    /// The lock is released. Wrong: the next process does the work again.
    Release,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) rules: Rules,
    pub(crate) processes: usize,
    pub(crate) claims: u8,
    pub(crate) renewals: u8,
    /// How many copies of requests that mark are sent.
    pub(crate) copies: u8,
    pub(crate) crashes: u8,
    /// When the period ends, by the server's clock.
    pub(crate) period_end: Time,
    pub(crate) ends: Ends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    Running {
        claim: ClaimId,
        deadline: Time,
    },
    /// The work has succeeded, and requests that mark the lock are on their way.
    Marking {
        claim: ClaimId,
    },
    /// The call has returned that the work was done.
    Done,
    /// The call has returned that the lock was lost.
    Lost,
    /// The call has returned that another one had done the work.
    DoneByOther,
    Crashed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Mark(ClaimId),
    /// The reply, with whether the mark stands as far as the process can tell.
    Marked(ClaimId, bool),
    Release(ClaimId),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: Time,
    document: Option<Document>,
    processes: Vec<Phase>,
    messages: Vec<Message>,
    claims: u8,
    renewals: u8,
    copies: u8,
    crashes: u8,
    /// A process was told that its lock was lost although its mark stood.
    has_denied_mark: bool,
    /// The work was begun although a mark stood.
    has_begun_again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    TimePasses,
    Call { process: usize },
    Renew { process: usize },
    Succeed { process: usize },
    Fail { process: usize },
    Crash { process: usize },
    RepeatMark { process: usize },
    Arrives(Message),
    IsLost(Message),
}

impl Done {
    fn is_marked(&self, state: &State) -> bool {
        let is_mark = |document: &Document| matches!(document.lock_id, LockId::Done(_));
        state.document.as_ref().is_some_and(is_mark) && state.now < self.period_end
    }

    fn arrives(&self, state: &mut State, message: Message) {
        let now = state.now;
        match message {
            Message::Mark(claim) => {
                let stands = match self.ends {
                    Ends::Release => {
                        self.rules.release(&mut state.document, claim, now);
                        true
                    }
                    Ends::Mark => {
                        let found = mark(&mut state.document, claim, self.period_end);
                        found == Some(LockId::Claim(claim)) || found == Some(LockId::Done(claim))
                    }
                    Ends::MarkByClaim => {
                        let found = own(&mut state.document, claim).is_some();
                        mark(&mut state.document, claim, self.period_end);
                        found
                    }
                };
                state.messages.push(Message::Marked(claim, stands));
            }
            Message::Marked(claim, stands) => {
                let marks = |phase: &&mut Phase| **phase == Phase::Marking { claim };
                let Some(phase) = state.processes.iter_mut().find(marks) else {
                    return;
                };
                *phase = if stands { Phase::Done } else { Phase::Lost };
                let id = state.document.map(|document| document.lock_id);
                state.has_denied_mark |= !stands && id == Some(LockId::Done(claim));
            }
            Message::Release(claim) => {
                self.rules.release(&mut state.document, claim, now);
            }
        }
    }
}

impl State {
    fn claim_of(&self, process: usize) -> Option<ClaimId> {
        match self.processes[process] {
            Phase::Running { claim, .. } | Phase::Marking { claim } => Some(claim),
            _ => None,
        }
    }

    fn tidy(&mut self) {
        let processes = self.processes.clone();
        self.messages.retain(|message| match message {
            Message::Marked(claim, _) => processes.contains(&Phase::Marking { claim: *claim }),
            Message::Mark(_) | Message::Release(_) => true,
        });
        self.messages.sort_unstable();
        self.processes.sort_unstable();
    }
}

impl Model for Done {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 1,
            document: None,
            processes: vec![Phase::Idle; self.processes],
            messages: Vec::new(),
            claims: 0,
            renewals: 0,
            copies: 0,
            crashes: 0,
            has_denied_mark: false,
            has_begun_again: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // The model ends with the period.
        if state.now + 1 < self.period_end {
            actions.push(Action::TimePasses);
        }
        for (process, phase) in state.processes.iter().enumerate() {
            if process > 0 && state.processes[process - 1] == *phase {
                continue;
            }
            match phase {
                Phase::Idle if state.claims < self.claims => actions.push(Action::Call { process }),
                Phase::Running { deadline, .. } => {
                    if state.renewals < self.renewals && state.now < *deadline {
                        actions.push(Action::Renew { process });
                    }
                    actions.push(Action::Succeed { process });
                    actions.push(Action::Fail { process });
                    if state.crashes < self.crashes {
                        actions.push(Action::Crash { process });
                    }
                }
                Phase::Marking { .. } => {
                    if state.copies < self.copies {
                        actions.push(Action::RepeatMark { process });
                    }
                    if state.crashes < self.crashes {
                        actions.push(Action::Crash { process });
                    }
                }
                _ => {}
            }
        }
        for message in &state.messages {
            actions.push(Action::Arrives(*message));
            actions.push(Action::IsLost(*message));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        match action {
            Action::TimePasses => state.now += 1,
            Action::Call { process } => {
                let claim = ClaimId(state.claims);
                state.claims += 1;
                let was_marked = self.is_marked(&state);
                match self.rules.claim(&mut state.document, claim, now, 1) {
                    Reply::Acquired { remaining, .. } => {
                        state.has_begun_again |= was_marked;
                        state.processes[process] = Phase::Running {
                            claim,
                            deadline: now + remaining,
                        };
                    }
                    Reply::Held if was_marked => state.processes[process] = Phase::DoneByOther,
                    // The call waits, and sends a request later.
                    Reply::Held => return None,
                }
            }
            Action::Renew { process } => {
                state.renewals += 1;
                let claim = state.claim_of(process)?;
                if !self.rules.renew(&mut state.document, claim, now) {
                    state.processes[process] = Phase::Lost;
                } else if let Phase::Running { deadline, .. } = &mut state.processes[process] {
                    *deadline = now + self.rules.expiry;
                }
            }
            Action::Succeed { process } => {
                let Phase::Running { claim, deadline } = state.processes[process] else {
                    return None;
                };
                state.processes[process] = if now < deadline {
                    state.messages.push(Message::Mark(claim));
                    Phase::Marking { claim }
                } else {
                    Phase::Lost
                };
            }
            Action::Fail { process } => {
                let claim = state.claim_of(process)?;
                state.messages.push(Message::Release(claim));
                state.processes[process] = Phase::Idle;
            }
            Action::Crash { process } => {
                state.crashes += 1;
                state.processes[process] = Phase::Crashed;
            }
            Action::RepeatMark { process } => {
                state.copies += 1;
                let claim = state.claim_of(process)?;
                state.messages.push(Message::Mark(claim));
            }
            Action::Arrives(message) | Action::IsLost(message) => {
                let at = state.messages.iter().position(|other| *other == message)?;
                state.messages.remove(at);
                if action == Action::Arrives(message) {
                    self.arrives(&mut state, message);
                }
            }
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "one call at most is told that it has done the work",
                |_, state: &State| {
                    state
                        .processes
                        .iter()
                        .filter(|phase| **phase == Phase::Done)
                        .count()
                        <= 1
                },
            ),
            Property::always(
                "a call whose mark stands is not told that its lock was lost",
                |_, state: &State| !state.has_denied_mark,
            ),
            Property::always("the work is not begun while a mark stands", |_, state: &State| {
                !state.has_begun_again
            }),
            Property::sometimes("another call finds the work done", |_, state: &State| {
                state.processes.contains(&Phase::DoneByOther)
            }),
            Property::sometimes(
                "a process crashes, and another one does the work",
                |_, state: &State| {
                    state.processes.contains(&Phase::Crashed) && state.processes.contains(&Phase::Done)
                },
            ),
            Property::sometimes("a process that was too slow is told so", |_, state: &State| {
                state.processes.contains(&Phase::Lost)
            }),
        ]
    }
}

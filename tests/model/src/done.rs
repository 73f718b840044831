//! Work that may succeed only once in a period: the claim is replaced by a mark that lasts until the period ends.
//!
//! The periods follow one another without a gap, and the model goes on into the second one: copies of a request arrive
//! when the mark of their period has ended.

use stateright::Model;

use crate::protocol::{ClaimId, Document, LockId, Reply, Rules, Time, Token, has_id};
use crate::shared::{Counts, take, unlike};

type Property = stateright::Property<Done>;

/// How a process finds out that its mark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The reply has the document as it is then: also a copy of the request finds the mark of the first one, or the
    /// release with which it has ended a claim after the period.
    Mark,
    /// The same, but after the period a copy that finds no claim takes that for a release by the first request. Wrong:
    /// others may have had the lock.
    MarkOrGoneLater,
    /// The reply says only whether the claim was found. Wrong: a copy does not find it.
    MarkByClaim,
    /// The lock is released. Wrong: the next process does the work again.
    Release,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) rules: Rules,
    pub(crate) processes: usize,
    /// How often each kind of step happens at most. The copies are of requests that mark.
    pub(crate) most: Counts,
    /// How long a period lasts, by the server's clock.
    pub(crate) period: Time,
    /// When the model ends, by the server's clock.
    pub(crate) horizon: Time,
    pub(crate) ends: Ends,
}

/// A request that marks the work of a claim as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MarkRequest {
    claim: ClaimId,
    /// The token in the document of the claim.
    token: Token,
    /// When the period of the work ends.
    end: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    Running {
        request: MarkRequest,
        deadline: Time,
    },
    /// The work has succeeded, and requests that mark the lock are on their way.
    Marking {
        request: MarkRequest,
        is_repeated: bool,
    },
    /// The call has returned that the work of the period with this end was done.
    Done {
        end: Time,
    },
    /// The call has returned that the lock was lost.
    Lost,
    /// The call has returned that another one had done the work.
    DoneByOther,
    Crashed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Mark(MarkRequest),
    Marked(ClaimId, MarkReply),
    Release(ClaimId),
}

/// What the reply to a request for a mark tells the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum MarkReply {
    /// The work is done: the mark stands, or the claim was released after its period.
    Done,
    /// The claim is gone.
    Gone,
    /// The period is over, and the process takes a claim that is gone for released if it has repeated its request.
    GoneLater,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: Time,
    document: Option<Document>,
    processes: Vec<Phase>,
    messages: Vec<Message>,
    done: Counts,
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
    /// The end of the period that this time belongs to.
    fn end_of_period(&self, now: Time) -> Time {
        (now / self.period + 1) * self.period
    }

    /// Whether the mark of a period stands that is not over.
    fn is_marked(state: &State) -> bool {
        let is_mark = |document: Document| {
            matches!(document.lock_id, LockId::Done(_)) && state.now < document.expires_at
        };
        state.document.is_some_and(is_mark)
    }

    /// Runs a request for a mark, and returns what the document tells the process then: the work is done if the mark stands, or if
    /// the claim had the lock until the end of its period and is released.
    fn mark(&self, at: &mut Option<Document>, request: MarkRequest, now: Time) -> MarkReply {
        let MarkRequest { claim, token, end } = request;
        let had_claim = self.rules.mark(at, claim, end, now);
        let is_done = at.is_some_and(|document| match document.lock_id {
            _ if self.ends == Ends::MarkByClaim => had_claim,
            LockId::Released => document.token == token && document.expires_at >= end,
            id => id == LockId::Done(claim),
        });
        match self.ends {
            _ if is_done => MarkReply::Done,
            Ends::MarkOrGoneLater if now >= end => MarkReply::GoneLater,
            _ => MarkReply::Gone,
        }
    }

    fn arrives(&self, state: &mut State, message: Message) {
        let now = state.now;
        match message {
            Message::Mark(request) => {
                let reply = if self.ends == Ends::Release {
                    self.rules.release(&mut state.document, request.claim, now);
                    MarkReply::Done
                } else {
                    self.mark(&mut state.document, request, now)
                };
                state.messages.push(Message::Marked(request.claim, reply));
            }
            Message::Marked(claim, reply) => {
                let marks = |phase: &&mut Phase| marked_claim(**phase) == Some(claim);
                let Some(phase) = state.processes.iter_mut().find(marks) else {
                    return;
                };
                let Phase::Marking { request, is_repeated } = *phase else {
                    return;
                };
                let is_done = reply == MarkReply::Done || (reply == MarkReply::GoneLater && is_repeated);
                *phase = if is_done {
                    Phase::Done { end: request.end }
                } else {
                    Phase::Lost
                };
                let stands = has_id(state.document, LockId::Done(claim)) && now < request.end;
                state.has_denied_mark |= !is_done && stands;
            }
            Message::Release(claim) => self.rules.release(&mut state.document, claim, now),
        }
    }
}

impl State {
    fn claim_of(&self, process: usize) -> Option<ClaimId> {
        match self.processes[process] {
            Phase::Running { request, .. } | Phase::Marking { request, .. } => Some(request.claim),
            _ => None,
        }
    }

    fn tidy(&mut self) {
        let marking: Vec<_> = self.processes.iter().copied().filter_map(marked_claim).collect();
        self.messages.retain(|message| match message {
            Message::Marked(claim, _) => marking.contains(claim),
            Message::Mark(_) | Message::Release(_) => true,
        });
        self.messages.sort_unstable();
        self.processes.sort_unstable();
    }
}

/// The end of the period whose work a process was told to have done.
fn done_until(phase: &Phase) -> Option<Time> {
    match phase {
        Phase::Done { end } => Some(*end),
        _ => None,
    }
}

/// The claim whose mark a process has requested.
fn marked_claim(phase: Phase) -> Option<ClaimId> {
    match phase {
        Phase::Marking { request, .. } => Some(request.claim),
        _ => None,
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
            done: Counts::default(),
            has_denied_mark: false,
            has_begun_again: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.horizon {
            actions.push(Action::TimePasses);
        }
        for (process, phase) in unlike(&state.processes) {
            match phase {
                Phase::Idle if state.done.claims < self.most.claims => actions.push(Action::Call { process }),
                Phase::Running { deadline, .. } => {
                    if state.done.renewals < self.most.renewals && state.now < *deadline {
                        actions.push(Action::Renew { process });
                    }
                    actions.push(Action::Succeed { process });
                    actions.push(Action::Fail { process });
                    if state.done.crashes < self.most.crashes {
                        actions.push(Action::Crash { process });
                    }
                }
                Phase::Marking { .. } => {
                    if state.done.copies < self.most.copies {
                        actions.push(Action::RepeatMark { process });
                    }
                    if state.done.crashes < self.most.crashes {
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
                let claim = ClaimId(state.done.claims);
                state.done.claims += 1;
                let was_marked = Self::is_marked(&state);
                match self.rules.claim(&mut state.document, claim, now, 1) {
                    Reply::Acquired { token, remaining } => {
                        state.has_begun_again |= was_marked;
                        let end = self.end_of_period(now);
                        state.processes[process] = Phase::Running {
                            request: MarkRequest { claim, token, end },
                            deadline: now + remaining,
                        };
                    }
                    Reply::Held if was_marked => state.processes[process] = Phase::DoneByOther,
                    // The call waits, and sends a request later.
                    Reply::Held => return None,
                }
            }
            Action::Renew { process } => {
                state.done.renewals += 1;
                let claim = state.claim_of(process)?;
                if !self.rules.renew(&mut state.document, claim, now) {
                    state.processes[process] = Phase::Lost;
                } else if let Phase::Running { deadline, .. } = &mut state.processes[process] {
                    *deadline = now + self.rules.expiry;
                }
            }
            Action::Succeed { process } => {
                let Phase::Running { request, deadline } = state.processes[process] else {
                    return None;
                };
                state.processes[process] = if now < deadline {
                    state.messages.push(Message::Mark(request));
                    Phase::Marking {
                        request,
                        is_repeated: false,
                    }
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
                state.done.crashes += 1;
                state.processes[process] = Phase::Crashed;
            }
            Action::RepeatMark { process } => {
                state.done.copies += 1;
                let Phase::Marking { request, is_repeated } = &mut state.processes[process] else {
                    return None;
                };
                *is_repeated = true;
                state.messages.push(Message::Mark(*request));
            }
            Action::Arrives(message) | Action::IsLost(message) => {
                take(&mut state.messages, &message)?;
                if action == Action::Arrives(message) {
                    self.arrives(&mut state, message);
                }
            }
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            Property::always(
                "one call at most is told that it has done the work of a period",
                |_, state| {
                    let mut ends: Vec<_> = state.processes.iter().filter_map(done_until).collect();
                    ends.sort_unstable();
                    ends.is_sorted_by(|end, next| end < next)
                },
            ),
            Property::always(
                "a call whose mark stands is not told that its lock was lost",
                |_, state| !state.has_denied_mark,
            ),
            Property::always("the work is not begun while a mark stands", |_, state| {
                !state.has_begun_again
            }),
            Property::sometimes("another call finds the work done", |_, state| {
                state.processes.contains(&Phase::DoneByOther)
            }),
            Property::sometimes("a process crashes, and another one does the work", |_, state| {
                state.processes.contains(&Phase::Crashed)
                    && state.processes.iter().any(|phase| done_until(phase).is_some())
            }),
            Property::sometimes("the work is done in two periods", |model, state| {
                let is_done = |end| state.processes.contains(&Phase::Done { end });
                is_done(model.period) && is_done(2 * model.period)
            }),
            Property::sometimes("a process that was too slow is told so", |_, state| {
                state.processes.contains(&Phase::Lost)
            }),
        ]
    }
}

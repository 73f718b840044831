//! Guarded commits: a transaction of a holder must not commit after a later holder has the lock, however long the process
//! pauses between two statements. The data is not fenced here.

use stateright::Model;

use crate::protocol::{ClaimId, Document, LockId, Rules, Time, own};
use crate::shared::Counts;

type Property = stateright::Property<Commit>;

/// What the last statement of the transaction does with the lock's document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// It changes the document, which is then in conflict with every other change until the transaction ends.
    Changes,
    /// It only reads the document. Wrong: nothing keeps others from changing it before the commit.
    Reads,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Commit {
    pub(crate) rules: Rules,
    pub(crate) processes: usize,
    pub(crate) most: Counts,
    pub(crate) horizon: Time,
    pub(crate) guard: Guard,
    /// Whether operators release locks by force.
    pub(crate) operators: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Transaction {
    None,
    /// It reads the documents as they were at this number of changes.
    Open {
        snapshot: u8,
        id: Option<LockId>,
    },
    /// The guarding statement was made, and the commit is on its way.
    Guarded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Process {
    hold: Option<(ClaimId, Time)>,
    transaction: Transaction,
    /// The claim that the transaction was guarded with.
    guarded_by: Option<ClaimId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: Time,
    document: Option<Document>,
    /// The number of changes of the lock's document.
    changes: u8,
    /// The process whose open transaction has changed the document.
    blocked_by: Option<usize>,
    processes: Vec<Process>,
    done: Counts,
    commits: u8,
    refused: u8,
    /// A transaction has committed after a later holder had the lock.
    has_stale_commit: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    TimePasses,
    Acquire { process: usize },
    Renew { process: usize },
    Release { process: usize },
    Begin { process: usize },
    Guard { process: usize },
    CommitArrives { process: usize },
    ServerAborts { process: usize },
    OperatorForcesRelease,
}

impl State {
    /// Changes the document, if no open transaction has changed it.
    fn change(&mut self, change: impl FnOnce(&mut Option<Document>)) -> Option<()> {
        if self.blocked_by.is_some() {
            return None;
        }
        let before = self.document;
        change(&mut self.document);
        self.changes += u8::from(self.document != before);
        Some(())
    }
}

impl Model for Commit {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let process = Process {
            hold: None,
            transaction: Transaction::None,
            guarded_by: None,
        };
        vec![State {
            now: 1,
            document: None,
            changes: 0,
            blocked_by: None,
            processes: vec![process; self.processes],
            done: Counts::default(),
            commits: 0,
            refused: 0,
            has_stale_commit: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.horizon {
            actions.push(Action::TimePasses);
        }
        for (process, at) in state.processes.iter().enumerate() {
            match at.hold {
                Some((_, deadline)) if state.now < deadline => {
                    actions.push(Action::Renew { process });
                    actions.push(Action::Release { process });
                }
                _ if state.done.claims < self.most.claims => actions.push(Action::Acquire { process }),
                _ => {}
            }
            match at.transaction {
                // It may begin before the lock is acquired, which is a mistake of the user.
                Transaction::None if state.done.transactions < self.most.transactions => {
                    actions.push(Action::Begin { process });
                }
                Transaction::None => {}
                Transaction::Open { .. } => {
                    // The holder has looked at its clock some time before the statement arrives.
                    if at.hold.is_some() {
                        actions.push(Action::Guard { process });
                    }
                }
                Transaction::Guarded => {
                    actions.push(Action::CommitArrives { process });
                    actions.push(Action::ServerAborts { process });
                }
            }
        }
        if self.operators {
            actions.push(Action::OperatorForcesRelease);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = state.now;
        let rules = self.rules;
        match action {
            Action::TimePasses => state.now += 1,
            Action::Acquire { process } => {
                let claim = ClaimId(state.done.claims);
                state.change(|at| {
                    rules.claim(at, claim, now, 1);
                })?;
                own(&mut state.document, claim)?;
                state.done.claims += 1;
                state.processes[process].hold = Some((claim, now + rules.expiry));
            }
            Action::Renew { process } => {
                let (claim, _) = state.processes[process].hold?;
                let mut is_renewed = false;
                state.change(|at| is_renewed = rules.renew(at, claim, now))?;
                state.processes[process].hold = is_renewed.then_some((claim, now + rules.expiry));
            }
            Action::Release { process } => {
                let (claim, _) = state.processes[process].hold.take()?;
                // While a transaction blocks the document, the release is repeated, or the lease expires.
                let _ = state.change(|at| rules.release(at, claim, now));
            }
            Action::Begin { process } => {
                state.done.transactions += 1;
                state.processes[process].transaction = Transaction::Open {
                    snapshot: state.changes,
                    id: state.document.map(|document| document.lock_id),
                };
            }
            Action::Guard { process } => {
                let Transaction::Open { snapshot, id } = state.processes[process].transaction else {
                    return None;
                };
                let (claim, _) = state.processes[process].hold?;
                let sees_claim = id == Some(LockId::Claim(claim));
                let is_guarded = match self.guard {
                    // A document that has changed since the snapshot is a conflict.
                    Guard::Changes => sees_claim && snapshot == state.changes && state.blocked_by.is_none(),
                    Guard::Reads => sees_claim,
                };
                let at = &mut state.processes[process];
                if is_guarded {
                    at.transaction = Transaction::Guarded;
                    at.guarded_by = Some(claim);
                    if self.guard == Guard::Changes {
                        state.blocked_by = Some(process);
                    }
                } else {
                    at.transaction = Transaction::None;
                    state.refused += 1;
                }
            }
            Action::CommitArrives { process } => {
                let claim = state.processes[process].guarded_by.take()?;
                state.processes[process].transaction = Transaction::None;
                state.has_stale_commit |= claim.0 + 1 != state.done.claims;
                state.commits += 1;
                if state.blocked_by == Some(process) {
                    state.blocked_by = None;
                    state.changes += 1;
                    if let Some(document) = own(&mut state.document, claim) {
                        document.expires_at = (document.expires_at + 1).max(now + rules.expiry);
                    }
                }
            }
            Action::ServerAborts { process } => {
                state.processes[process].transaction = Transaction::None;
                state.processes[process].guarded_by = None;
                if state.blocked_by == Some(process) {
                    state.blocked_by = None;
                }
            }
            Action::OperatorForcesRelease => {
                let seen = rules.seen(state.document, now)?;
                state.change(|at| rules.force_release(at, seen, now))?;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            Property::always(
                "no transaction commits after a later holder has the lock",
                |_, state| !state.has_stale_commit,
            ),
            Property::sometimes(
                "a lease ends before its guarded transaction commits",
                |_, state| {
                    let is_late = |process: &Process| {
                        process.transaction == Transaction::Guarded
                            && process.hold.is_none_or(|(_, deadline)| deadline <= state.now)
                    };
                    state.processes.iter().any(is_late)
                },
            ),
            Property::sometimes("two holders have committed", |_, state| state.commits >= 2),
            Property::sometimes("a guard is refused", |_, state| state.refused > 0),
        ]
    }
}

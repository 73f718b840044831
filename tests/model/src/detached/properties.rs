//! What must hold in all states, and what must be possible.

use std::collections::BTreeSet;

use super::{Command, Detached, Hold, Name, Origin, Owed, Phase, Property, Request, State};
use crate::shared::{ONE_HOLDER, RISES};

impl State {
    /// Whether the lock changes only if a process begins something.
    fn is_still(&self) -> bool {
        let waits = |phase: &Phase| phase.request().is_some();
        self.commands.is_empty() && self.owed.is_empty() && !self.processes.iter().any(waits)
    }

    /// Whether a name has the id of this command, although the command that was sent at once has taken effect.
    fn is_late(&self, owed: Owed) -> bool {
        let is_sent = |command: &Command| command.request == owed.request();
        let has_id = |name: &Name| name.hold == Some(owed.request().of());
        self.names.iter().any(has_id) && !self.commands.iter().any(is_sent)
    }
}

impl Detached {
    /// What must be possible within the bounds.
    pub(super) fn possible(&self) -> Vec<Property> {
        let mut properties = vec![Property::sometimes("a handle is resumed", |_, state| {
            state.handles().any(|handle| state.about(handle).won == 1)
        })];
        if self.most.resumes > 1 {
            properties.push(Property::sometimes(
                "two requests that resume one handle are on their way",
                |_, state| {
                    let resumes = |command: &&Command| matches!(command.request, Request::Resume { .. });
                    let commands = state.commands.iter().filter(resumes);
                    let holds = commands.map(|command| command.request.makes());
                    holds.collect::<BTreeSet<_>>().len() > 1
                },
            ));
            properties.push(Property::sometimes(
                "a resumption that was given up has the lock while another is tried",
                |_, state| {
                    let is_late = |owed: &Owed| matches!(owed, Owed::GiveBack { .. }) && state.is_late(*owed);
                    let tries = |phase: &Phase| matches!(phase, Phase::Resuming { .. });
                    state.owed.iter().any(is_late) && state.processes.iter().any(tries)
                },
            ));
        }
        properties.push(Property::sometimes(
            "a lease is detached after its process has given up",
            |_, state| {
                let is_late = |owed: &Owed| match owed {
                    Owed::Release(hold) => {
                        state.handles().any(|handle| handle == *hold) && state.is_late(*owed)
                    }
                    Owed::GiveBack { .. } => false,
                };
                state.owed.iter().any(is_late)
            },
        ));
        if self.is_held && self.most.claims > 0 {
            properties.push(Property::sometimes(
                "another process acquires a lock that was resumed",
                |_, state| {
                    let is_later = |hold: Hold| {
                        let mut resumed = state.handles().filter(|handle| state.about(*handle).won == 1);
                        state.about(hold).origin == Origin::Claim
                            && resumed.any(|handle| state.about(handle).origin != Origin::Detached(hold))
                    };
                    state.names.iter().filter_map(|name| name.hold).any(is_later)
                },
            ));
        }
        properties
    }

    /// The lock, and the handle, has one holder at most, for as long as it was told.
    pub(super) fn safe() -> [Property; 6] {
        [
            Property::always(ONE_HOLDER, |_, state| {
                let relies = |phase: &&Phase| matches!(phase, Phase::Holding { .. });
                state.processes.iter().filter(relies).count() <= 1
            }),
            Property::always(RISES, |_, state| !state.wrongs.token_fell),
            Property::always("a command for one hold changes no other", |_, state| {
                !state.wrongs.changed_other
            }),
            Property::always("a detached lease lasts as long as it was granted", |_, state| {
                !state.wrongs.cut
            }),
            Property::always(
                "nobody else acquires a lock whose detached lease runs",
                |_, state| !state.wrongs.acquired_early,
            ),
            Property::always("one process at most resumes a handle", |_, state| {
                state.holds.iter().all(|hold| hold.won <= 1)
            }),
        ]
    }

    /// A lease that is detached can be resumed.
    pub(super) fn live() -> [Property; 3] {
        [
            Property::always("one of those that resume a handle gets it", |_, state| {
                let resumes = |phase: &Phase| matches!(phase, Phase::Resuming { .. });
                let is_decided = !state.processes.iter().any(resumes);
                let was_tried = |handle: &Hold| {
                    let origin = Origin::Resumed(*handle);
                    state.holds.iter().any(|hold| hold.origin == origin)
                };
                let mut tried = state.handles().filter(was_tried);
                state.is_disturbed || !is_decided || tried.all(|handle| state.about(handle).won == 1)
            }),
            Property::always("no lease is kept by a resumption that nobody has", |_, state| {
                let is_kept = |hold: Hold| {
                    let about = state.about(hold);
                    matches!(about.origin, Origin::Resumed(_)) && about.won == 0
                };
                !state.is_still() || !state.names.iter().filter_map(|name| name.hold).any(is_kept)
            }),
            Property::always(
                "a process releases no lease that others can resume",
                |_, state| !state.wrongs.lost_lease,
            ),
        ]
    }
}

//! Applies the notifications of the core to a call and its hold.

use std::sync::Arc;

use super::after;
use super::reports::EngineReport;
use super::state::{Event, Granted, How, Lease, State, Step};
use crate::core::{EndResult, Ended, Ending, Grant, Key, LossReason, Notice, Time, relied_on};
use crate::permit_id;
use crate::store::{LeaseId, millis};
use crate::sync::lock;

impl Lease {
    /// Applies a notification. If the caller of a new hold was dropped, returns the event that ends the hold.
    pub(super) fn note(self: &Arc<Self>, now: Time, notice: Notice) -> Option<Event> {
        let state = &mut *lock(&self.state);
        let event = match notice {
            Notice::Held(hold, grants, until) => self.held(state, now, hold, &grants, until),
            Notice::Extended(end) => {
                self.extended(state, now, end);
                // A lease that goes on wakes no caller.
                if end > now && !matches!(state.step, Step::Lost(_)) {
                    return None;
                }
                None
            }
            // A set that waits loses a lock that it had, and begins anew.
            Notice::Lost(_) if !matches!(state.step, Step::Held { .. }) => None,
            Notice::Lost(reason) => {
                self.lose(state, now, reason);
                None
            }
            Notice::Ended(ended) => self.ended(state, now, ended),
            Notice::Committed(was_made) => {
                state.committed = Some(was_made == Some(true));
                None
            }
            Notice::Failed(failure) => {
                if let Step::Waits = state.step {
                    state.step = Step::Failed(failure);
                }
                None
            }
        };
        after::wake(&mut state.wakers);
        event
    }

    fn held(&self, state: &mut State, now: Time, hold: Key, grants: &[Grant], until: Time) -> Option<Event> {
        if let Step::Left = state.step {
            return Some(Event::End(hold, Ending::Untaken, None));
        }
        self.granted.get_or_init(|| {
            Box::new(Granted {
                hold,
                keys: self.about.names.iter().zip(grants).map(key_of).collect(),
                tokens: grants.iter().map(|grant| grant.token).collect(),
                mark: grants.first().and_then(|grant| grant.mark),
                has_waited: grants.iter().any(|grant| grant.has_waited),
                at: now,
            })
        });
        state.step = Step::Held {
            until: Some(until),
            lasts: until,
        };
        None
    }

    fn extended(self: &Arc<Self>, state: &mut State, now: Time, end: Time) {
        match &mut state.step {
            // The holder has noticed the end before the core.
            Step::Held { until: None, .. } if end > now => self.lose(state, now, LossReason::Expired),
            Step::Held {
                until: Some(until),
                lasts,
            } => {
                let before = std::mem::replace(until, end);
                *lasts = end.max(*lasts);
                if before < end {
                    let lasts = relied_on(millis(self.about.options.expiry));
                    after::report(EngineReport::Renewed(Arc::clone(self), now - before + lasts));
                }
            }
            _ => {}
        }
    }

    pub(super) fn lose(self: &Arc<Self>, state: &mut State, now: Time, reason: LossReason) {
        state.step = Step::Lost(reason);
        after::report(EngineReport::Lost(Arc::clone(self), now, reason));
    }

    /// The command that ends the hold has ended, or a transaction has ended the hold with its mark.
    fn ended(self: &Arc<Self>, state: &mut State, now: Time, ended: EndResult) -> Option<Event> {
        let (how, discards) = match &mut state.step {
            Step::Ending(how, _, discards) => (*how, discards.take()),
            Step::Lost(_) | Step::Ended(_) => return None,
            _ => (How::Mark, None),
        };
        after::report(EngineReport::Ended(Arc::clone(self), now, how, ended.clone()));
        state.step = match ended {
            Ok(Ended::Lost) => Step::Lost(LossReason::Gone),
            ended => Step::Ended(ended),
        };
        discards.map(|id| self.discarded(&id))
    }

    /// No caller has the handle of the lease with this id, to which the hold was detached.
    pub(super) fn discarded(&self, id: &Arc<str>) -> Event {
        let lease = |key: &LeaseId| (Arc::clone(&key.name), Arc::clone(id));
        Event::Discard(self.keys().iter().map(lease).collect())
    }
}

fn key_of((name, grant): (&Arc<str>, &Grant)) -> LeaseId {
    let of_permit = grant.permit.filter(|_| permit_id::number(name).is_none());
    LeaseId {
        name: of_permit.map_or_else(|| Arc::clone(name), |number| permit_id::new(name, number)),
        lock_id: Arc::clone(&grant.id),
    }
}

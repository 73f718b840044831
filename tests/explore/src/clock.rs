//! Time passes: to the next timer, or to the end of a command that has had no reply.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::core::{Event, FaultKind, Key, Time};
use crate::network::fault;
use crate::protocol::Row;
use crate::world::World;

/// A command that an engine keeps until then, or until its reply.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) process: usize,
    pub(crate) flight: Key,
    pub(crate) sent: Time,
    pub(crate) until: Time,
    pub(crate) is_look: bool,
    pub(crate) is_renewal: bool,
    pub(crate) rows: Arc<[Row]>,
}

/// Its rows follow from the claims of its process.
impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (
            self.process,
            self.flight,
            self.until,
            self.is_look,
            self.is_renewal,
        )
            .hash(state);
    }
}

impl World<'_> {
    pub(crate) fn next_time(&self) -> Option<Time> {
        let due = self.alive().filter_map(|(_, process)| process.core.next_due());
        due.chain(self.kept.iter().map(|kept| kept.until)).min()
    }

    /// The clock goes to what is due next.
    pub(crate) fn time_passes(&mut self) {
        let Some(next) = self.next_time() else { return };
        if !self.is_quiet() {
            self.left.slow = self.left.slow.saturating_sub(1);
        } else if self.holds_any() {
            self.left.holds = self.left.holds.saturating_sub(1);
        }
        self.now = next.max(self.now);
        self.judge_gaps();
        let now = self.now;
        self.network
            .retain(|message| !message.is_command() || message.until > now);
        // The engines end what has had no reply.
        let (over, kept): (Vec<Kept>, _) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|kept| kept.until <= now);
        self.kept = kept;
        for Kept {
            process,
            flight,
            is_look,
            ..
        } in over
        {
            let fault = fault(FaultKind::Failed, true);
            let event = if is_look {
                Event::Looked(flight, Err(fault))
            } else {
                Event::Ran(flight, Err(fault))
            };
            self.feed(process, event);
        }
        for number in 0..self.processes.len() {
            let is_due = |world: &Self| {
                let due = world.processes[number].core.next_due();
                due.is_some_and(|at| at <= now)
            };
            if self.processes[number].is_alive() && is_due(self) {
                self.feed(number, Event::Tick);
                let is_still = is_due(self);
                self.judge.unless(!is_still, "a timer is due again at once");
            }
        }
        self.judge_limits();
        self.judge_renewals();
    }
}

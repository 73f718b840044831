//! The record of all holds and waits, as callers have seen them, and the checks of what must never happen. Times are
//! those of the server's clock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::line::Line;
use crate::permit_id;
use crate::protocol::{Ms, Name};

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) next: u64,
    pub(super) holders: BTreeMap<u64, Holder>,
    pub(super) calls: BTreeMap<u64, Waiting>,
    /// The greatest token of each lock, and all of them.
    greatest: HashMap<Name, i64>,
    tokens: HashSet<(Name, i64)>,
    /// The end of the minimum hold that keeps a lock taken.
    pub(super) kept: HashMap<Name, Ms>,
    /// When a lock was last released by force, and when its document was deleted.
    pub(super) forced: HashMap<Name, Ms>,
    pub(super) deleted: HashMap<Name, Ms>,
    /// The end of a confirmed mark.
    marks: HashMap<Name, Ms>,
    /// Work that has succeeded, with the end of its mark if that is known.
    pub(super) successes: HashSet<(Name, Option<Ms>)>,
    pub(super) breaches: Vec<String>,
}

/// A holder that relies on these locks.
pub(super) struct Holder {
    pub(super) who: String,
    /// When its call began.
    pub(super) called: Ms,
    pub(super) names: Vec<Name>,
    pub(super) believes: Box<dyn Fn() -> bool + Send>,
}

/// A call that waits for one of these locks, or for all of them.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) line: Arc<Line>,
    pub(super) names: Vec<Name>,
    pub(super) wants_all: bool,
    pub(super) begun: Ms,
}

impl Ledger {
    /// A holder begins to rely on these locks. Returns its key, and another holder that relies on one of them.
    pub(super) fn begin(&mut self, holder: Holder) -> (u64, Option<String>) {
        let shares = |name: &Name, other: &Holder| {
            other.names.contains(name) && !self.was_forced(name, holder.called.min(other.called))
        };
        let is_rival =
            |other: &&Holder| holder.names.iter().any(|name| shares(name, other)) && (other.believes)();
        let rival = self
            .holders
            .values()
            .find(is_rival)
            .map(|other| other.who.clone());
        self.next += 1;
        self.holders.insert(self.next, holder);
        (self.next, rival)
    }

    /// Checks a new hold: its token, the minimum hold before it, and marks that must have prevented it.
    pub(super) fn judge_grant(
        &mut self,
        name: &Name,
        token: i64,
        called: Ms,
        acquired: Option<Ms>,
        now: Ms,
    ) -> Option<&'static str> {
        let is_new = self.tokens.insert((Arc::clone(name), token));
        let greatest = self.greatest.entry(Arc::clone(name)).or_insert(i64::MIN);
        let rises = token > *greatest;
        *greatest = token.max(*greatest);
        let is_excused = self.was_forced(name, called);
        match () {
            () if !is_new => Some("the token is not new"),
            () if is_excused => None,
            () if !rises => Some("the token is not greater than all before"),
            () if acquired.is_some() && acquired < self.kept.get(name).copied() => {
                Some("the minimum hold is not over")
            }
            () if self.marks.get(name) > Some(&now) => Some("the work is done"),
            () => None,
        }
    }

    /// A lock is released by force.
    pub(super) fn is_forced(&mut self, name: &Name, now: Ms) {
        self.forced.insert(Arc::clone(name), now);
        self.kept.remove(name);
        self.marks.remove(name);
        self.successes.retain(|(done, _)| done != name);
    }

    pub(super) fn was_forced(&self, name: &Name, since: Ms) -> bool {
        self.forced.get(name) >= Some(&since)
    }

    /// A mark with this end is confirmed. Returns whether it is the first one of its period.
    pub(super) fn is_marked(&mut self, name: &Name, called: Ms, until: Ms) -> bool {
        if self.was_forced(name, called) {
            return true;
        }
        let before = self.marks.insert(Arc::clone(name), until);
        before != Some(until)
    }

    /// Whether a call may return that the work is done until this time.
    pub(super) fn is_done(&self, name: &Name, called: Ms, until: Ms) -> bool {
        let has = |until| self.successes.contains(&(Arc::clone(name), until));
        self.was_forced(name, called) || has(Some(until)) || has(None)
    }

    /// The number of holders that rely on a permit.
    pub(super) fn permits_out(&self) -> usize {
        let has_one = |holder: &&Holder| {
            let is_permit = |name: &&Name| permit_id::number(name).is_some();
            let mut permits = holder.names.iter().filter(is_permit);
            permits.any(|name| !self.was_forced(name, holder.called)) && (holder.believes)()
        };
        self.holders.values().filter(has_one).count()
    }
}

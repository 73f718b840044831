//! Which holds wait for each other, so that none of them can end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::store::NestedWait;
use crate::timing::DEADLOCK_SINCE;

/// What is known of some names. A name that was not read, or that is free, has no holders here.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    /// The `lockId`s of the holders of each name: one for a lock, and several for the permits of a semaphore.
    pub(crate) holders: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The waits of callers that hold something.
    pub(crate) waits: Vec<NestedWait>,
}

/// A deadlock, as one of its members sees it.
#[derive(Debug, Clone)]
pub(crate) struct Circle {
    /// The names in their order: the holder of each one waits for the next one. The first is the one that the member waits for,
    /// and the member holds the last.
    pub(crate) names: Vec<Arc<str>>,
    /// The stuck names and their holders, and the waits that list these, with nothing else that they hold.
    holders: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    waits: Vec<NestedWait>,
}

impl Circle {
    /// Whether an earlier reading has found the same: the same holds in the same waits.
    pub(crate) fn confirms(&self, before: &Self) -> bool {
        let is_same = |(wait, before): (&NestedWait, &NestedWait)| {
            let moved = wait
                .since
                .timestamp_millis()
                .abs_diff(before.since.timestamp_millis());
            let is_other =
                (&wait.provider, &wait.name, &wait.holds) != (&before.provider, &before.name, &before.holds);
            !is_other && u128::from(moved) <= DEADLOCK_SINCE.as_millis()
        };
        self.names == before.names
            && self.holders == before.holders
            && self.waits.len() == before.waits.len()
            && self.waits.iter().zip(&before.waits).all(is_same)
    }
}

impl World {
    /// The deadlock in which a caller is that waits for this name and has these holds; `None` if there is none. A caller that
    /// waits for a deadlock of others is no member.
    pub(crate) fn circle(&self, awaited: &Arc<str>, own: &[Arc<str>]) -> Option<Circle> {
        let stuck = self.stuck();
        let names = shortest(&stuck, &self.waits, awaited, own)?;
        let holds: BTreeSet<&Arc<str>> = stuck.values().copied().flatten().collect();
        let part = |wait: &NestedWait| {
            let mut wait = wait.clone();
            wait.holds.retain(|hold| holds.contains(hold));
            wait.holds.sort_unstable();
            (!wait.holds.is_empty()).then_some(wait)
        };
        let mut waits: Vec<NestedWait> = self.waits.iter().filter_map(part).collect();
        waits.sort_by(|a, b| (&a.provider, &a.name).cmp(&(&b.provider, &b.name)));
        let holders = stuck.into_iter();
        let holders = holders.map(|(name, holders)| (Arc::clone(name), holders.clone()));
        Some(Circle {
            names,
            holders: holders.collect(),
            waits,
        })
    }

    /// The greatest set of names of which each holder is stuck. A hold is stuck if a wait lists it, and if all waits that list
    /// it are for stuck names.
    fn stuck(&self) -> BTreeMap<&Arc<str>, &BTreeSet<Arc<str>>> {
        let mut stuck: BTreeMap<_, _> = self.holders.iter().collect();
        stuck.retain(|_, holders| !holders.is_empty());
        loop {
            let names: BTreeSet<&Arc<str>> = stuck.keys().copied().collect();
            let is_stuck = |hold: &Arc<str>| {
                let mut waits = listing(&self.waits, hold).peekable();
                waits.peek().is_some() && waits.all(|wait| names.contains(&wait.name))
            };
            stuck.retain(|_, holders| holders.iter().all(is_stuck));
            if stuck.len() == names.len() {
                return stuck;
            }
        }
    }
}

/// The shortest way from a name to one of these holds, over stuck names only.
fn shortest(
    stuck: &BTreeMap<&Arc<str>, &BTreeSet<Arc<str>>>,
    waits: &[NestedWait],
    awaited: &Arc<str>,
    own: &[Arc<str>],
) -> Option<Vec<Arc<str>>> {
    let mut ways = VecDeque::from([vec![awaited]]);
    let mut seen = BTreeSet::from([awaited]);
    while let Some(way) = ways.pop_front() {
        let holders = *stuck.get(way.last()?)?;
        if holders.iter().any(|hold| own.contains(hold)) {
            return Some(way.into_iter().map(Arc::clone).collect());
        }
        for wait in holders.iter().flat_map(|hold| listing(waits, hold)) {
            if seen.insert(&wait.name) {
                ways.push_back([way.as_slice(), &[&wait.name]].concat());
            }
        }
    }
    None
}

/// The waits that list this hold.
fn listing<'w>(waits: &'w [NestedWait], hold: &Arc<str>) -> impl Iterator<Item = &'w NestedWait> {
    waits.iter().filter(move |wait| wait.holds.contains(hold))
}

#[cfg(test)]
mod tests;

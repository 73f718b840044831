//! What the instances have reported, tick by tick.

use std::collections::BTreeMap;

use crate::schedule::Tick;
use crate::store::{Call, Outcome, Run};

/// The reports about the ticks of the demonstration. The instances go on until they are told to stop, and what they
/// say about later ticks is left aside.
#[derive(Debug)]
pub(crate) struct Journal {
    ticks: BTreeMap<Tick, Entry>,
    /// The last tick, be it of the demonstration or later, that each instance has called the job for.
    reached: BTreeMap<u32, Tick>,
    /// The instances that have not been killed.
    living: Vec<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) runs: Vec<Run>,
    pub(crate) calls: Vec<Call>,
}

impl Journal {
    pub(crate) fn new(ticks: &[Tick], instances: u32) -> Self {
        Self {
            ticks: ticks.iter().map(|tick| (*tick, Entry::default())).collect(),
            reached: BTreeMap::new(),
            living: (1..=instances).collect(),
        }
    }

    /// Takes all reports in the place of those that it has.
    pub(crate) fn replace(&mut self, runs: Vec<Run>, calls: Vec<Call>) {
        self.ticks
            .values_mut()
            .for_each(|entry| *entry = Entry::default());
        for run in runs {
            self.ticks
                .entry(run.tick)
                .and_modify(|entry| entry.runs.push(run));
        }
        for call in calls {
            let reached = self.reached.entry(call.instance).or_insert(call.tick);
            *reached = call.tick.max(*reached);
            self.ticks
                .entry(call.tick)
                .and_modify(|entry| entry.calls.push(call));
        }
    }

    /// Expects nothing more of an instance.
    pub(crate) fn forget(&mut self, instance: u32) {
        self.living.retain(|living| *living != instance);
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Tick, &Entry)> {
        self.ticks.iter().map(|(tick, entry)| (*tick, entry))
    }

    /// Whether the job has been run for this tick, and all instances have called it for this tick or a later one. An
    /// instance may leave a tick out, for example if it has started later than the others.
    pub(crate) fn is_complete(&self, tick: Tick) -> bool {
        let has_run = self.ticks.get(&tick).is_some_and(|entry| !entry.runs.is_empty());
        let reached = |instance: &u32| self.reached.get(instance).is_some_and(|last| *last >= tick);
        has_run && self.living.iter().all(reached)
    }
}

impl Entry {
    /// The instances whose call had this outcome.
    pub(crate) fn instances(&self, outcome: Outcome) -> Vec<u32> {
        let calls = self.calls.iter().filter(|call| call.outcome == outcome);
        calls.map(|call| call.instance).collect()
    }

    /// Whether the job was run by an instance that had not run it when it was called for this tick.
    pub(crate) fn is_made_up(&self) -> bool {
        let other = |call: &Call| call.outcome != Outcome::Ran;
        self.runs.iter().any(|run| {
            self.calls
                .iter()
                .any(|call| call.instance == run.instance && other(call))
        })
    }
}

//! The scenarios, and the random plan of a seed.

use std::time::Duration;

use self::Knob::*;
use super::{choice, millis};

/// The work of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Lock,
    Set,
    Permit,
    /// Work that may succeed once in each period.
    Period,
    /// Work that may succeed once.
    Once,
}

/// The disturbances that a scenario can have. Numbers are thousandths of commands, events or calls; the others are 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knob {
    /// Commands or replies that are lost, slow or doubled.
    Network,
    /// Commands that end with an error of the driver or the server.
    Errors,
    /// Commands that take effect up to a minute late.
    Late,
    /// Commands of several rows that end in their middle.
    Parts,
    /// Events of the change stream that are lost, late or doubled, and streams that fail.
    Stream,
    /// Calls that are dropped before their end.
    Drops,
    /// Processes crash or are shut down, and others start in their place.
    Crashes,
    Pauses,
    Failovers,
    Overload,
    /// An operator releases locks by force.
    Operators,
    /// The server deletes documents of unused locks.
    Sweeps,
    /// Leases last for ten minutes, so that a lease that was never released still exists at the end.
    Long,
}

type Knobs = &'static [(Knob, u32)];

/// The name of a scenario, the work of its callers, and its disturbances.
pub(super) type Scenario = (&'static str, &'static [Work], &'static [Knobs]);

const LOCKS: &[Work] = &[Work::Lock];
const SETS: &[Work] = &[Work::Set, Work::Set, Work::Lock];
const MARKS: &[Work] = &[Work::Period, Work::Once];
const ALL: &[Work] = {
    use Work::{Lock, Period, Permit, Set};
    &[Lock, Lock, Lock, Set, Permit, Period]
};

const CALM: Knobs = &[(Drops, 50)];
const BAD: Knobs = &[(Network, 30), (Errors, 20), (Stream, 50), (Drops, 100)];
const OTHERS: Knobs = &[(Failovers, 1), (Overload, 1), (Operators, 1), (Sweeps, 1)];

pub(super) static SCENARIOS: &[Scenario] = &[
    ("calm", ALL, &[CALM]),
    ("network", LOCKS, &[BAD]),
    ("late_commands", LOCKS, &[BAD, &[(Late, 30)]]),
    ("long_leases", ALL, &[BAD, &[(Late, 20), (Parts, 100), (Long, 1)]]),
    ("crashes", ALL, &[BAD, &[(Crashes, 1)]]),
    ("restarts", ALL, &[CALM, &[(Crashes, 1)]]),
    ("pauses", ALL, &[CALM, &[(Stream, 20), (Pauses, 1)]]),
    ("failovers", ALL, &[CALM, &[(Failovers, 1)]]),
    ("overload", ALL, &[CALM, &[(Overload, 1)]]),
    ("operators", ALL, &[CALM, &[(Network, 10), (Operators, 1)]]),
    ("sweeps", LOCKS, &[BAD, &[(Sweeps, 1)]]),
    ("sets", SETS, &[BAD, &[(Parts, 100), (Crashes, 1)]]),
    ("permits", &[Work::Permit], &[BAD, &[(Crashes, 1)]]),
    ("marks", MARKS, &[BAD, &[(Crashes, 1)]]),
    (
        "everything",
        ALL,
        &[BAD, OTHERS, &[(Late, 10), (Parts, 50), (Crashes, 1), (Pauses, 1)]],
    ),
];

/// The random choices of a seed.
pub(super) struct Plan {
    scenario: &'static Scenario,
    pub(super) lasts: Duration,
    pub(super) processes: usize,
    pub(super) callers: usize,
    pub(super) names: usize,
    pub(super) permits: u32,
    pub(super) expiry: Duration,
    /// The longest hold and the longest pause of a caller, in milliseconds.
    pub(super) holds: u64,
    pub(super) thinks: u64,
    /// The length of the periods of a work.
    pub(super) period: Duration,
    /// The longest time of a command, in milliseconds.
    pub(super) trip: u64,
}

impl Plan {
    pub(super) fn new(scenario: &'static Scenario) -> Self {
        let mut plan = Self {
            scenario,
            lasts: millis(15_000..=30_000),
            processes: fastrand::usize(2..=3),
            callers: fastrand::usize(1..=3),
            names: fastrand::usize(1..=3),
            permits: fastrand::u32(1..=3),
            expiry: Duration::from_millis(choice(&[700, 2000, 6000])),
            holds: choice(&[20, 200, 1500]),
            thinks: choice(&[10, 100, 1000]),
            period: Duration::from_secs(choice(&[1, 4, 15])),
            trip: choice(&[2, 10]),
        };
        if plan.has(Long) {
            plan.expiry = Duration::from_secs(600);
        }
        plan
    }

    pub(super) fn work(&self) -> Work {
        choice(self.scenario.1)
    }

    pub(super) fn knob(&self, knob: Knob) -> u32 {
        let mut knobs = self.scenario.2.iter().copied().flatten();
        knobs
            .find(|(own, _)| *own == knob)
            .map_or(0, |(_, number)| *number)
    }

    pub(super) fn has(&self, knob: Knob) -> bool {
        self.knob(knob) > 0
    }
}

//! What is run: searches and random runs that must hold, and mutants that must fail.

use std::process::ExitCode;
use std::time::Duration;

use crate::mutant::Mutant;
use crate::search::{self, Found};
use crate::setup::{Faults, Setup};
use crate::{random, report};

/// One search, or one set of random runs.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) setup: Setup,
    pub(crate) kind: Kind,
    pub(crate) is_long: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Every order within the bounds.
    Whole,
    /// As many situations as this.
    First(usize),
    /// This number of seeds, with this number of steps each.
    Random { seeds: u64, length: usize },
}

const NO_FAULTS: Faults = Faults {
    lost: 0,
    unclear: 0,
    repeated: 0,
    slow: 0,
    cancelled: 0,
    crashes: 0,
    stopped_streams: 0,
    holds: 1,
};

/// Two processes with two callers each, which call once, without a stream and without faults.
const PLAIN: Setup = Setup {
    processes: 2,
    callers: 2,
    stream: false,
    fair: false,
    expiry: Duration::from_secs(600),
    deadlines: false,
    tries: false,
    unawaited: false,
    own_events: false,
    again: false,
    faults: NO_FAULTS,
    most_free: Duration::from_millis(800),
    most_given_up: Duration::from_secs(5),
    mutant: None,
};

const FAIR: Setup = Setup {
    stream: true,
    fair: true,
    own_events: true,
    most_free: Duration::from_millis(50),
    ..PLAIN
};
include!("trial.rs");
impl Case {
    pub(crate) fn run(&self) -> Found {
        match self.kind {
            Kind::Whole => search::search(&self.setup, usize::MAX),
            Kind::First(most) => search::search(&self.setup, most),
            Kind::Random { seeds, length } => random::runs(&self.setup, seeds, length),
        }
    }
}

//! What is run: searches and random runs that must hold, and mutants that must fail.

mod bounds;
mod long;
mod mutants;

use crate::mutant::Mutant;
use crate::random;
use crate::search::{self, Found};
use crate::setup::{Faults, Setup};
use bounds::{
    CRASH, DEAD, FLEET, FOLLOWED, IN_LINE, LOST, LOST_AND_CANCELLED, NO_FAULTS, POLLING, REPEATED, SHORT,
    STOPPED, WITH_A_TRY, in_line, with,
};

/// One search, or one set of random runs.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) setup: Setup,
    pub(crate) kind: Kind,
    /// What the judge must find, because a rule is taken out.
    pub(crate) breaks: Option<&'static str>,
    pub(crate) is_long: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every order within the bounds.
    Whole,
    /// As many situations as this, of more.
    First(usize),
    /// This number of seeds, with this number of steps each.
    Random { seeds: u64, length: usize },
}

/// The number of situations that are looked at with a rule that is taken out afterwards.
const PART: usize = 150_000;

impl Case {
    const fn whole(name: &'static str, setup: Setup) -> Self {
        Self {
            name,
            setup,
            kind: Kind::Whole,
            breaks: None,
            is_long: false,
        }
    }

    const fn first(name: &'static str, millions: usize, setup: Setup) -> Self {
        Self {
            kind: Kind::First(millions * 1_000_000),
            is_long: true,
            ..Self::whole(name, setup)
        }
    }

    const fn random(name: &'static str, setup: Setup) -> Self {
        Self {
            kind: Kind::Random {
                seeds: 100,
                length: 1500,
            },
            ..Self::whole(name, setup)
        }
    }

    const fn long(self) -> Self {
        let kind = match self.kind {
            Kind::Random { .. } => Kind::Random {
                seeds: 1250,
                length: 2000,
            },
            kind => kind,
        };
        Self {
            kind,
            is_long: true,
            ..self
        }
    }

    /// Without a rule the judge must find this.
    const fn without(self, mutant: Mutant, breaks: &'static str) -> Self {
        let setup = Setup {
            mutant: Some(mutant),
            ..self.setup
        };
        Self {
            setup,
            breaks: Some(breaks),
            ..self
        }
    }

    /// Runs it. Where a rule is taken out, the same bounds must hold with the rule, as far as a part of the situations shows.
    pub(crate) fn run(&self) -> Found {
        if self.breaks.is_some() {
            let with_rule = Setup {
                mutant: None,
                ..self.setup
            };
            let found = search::search(&with_rule, PART);
            if found.breach.is_some() {
                return found;
            }
        }
        match self.kind {
            Kind::Whole => search::search(&self.setup, usize::MAX),
            Kind::First(most) => search::search(&self.setup, most),
            Kind::Random { seeds, length } => random::runs(&self.setup, seeds, length),
        }
    }
}

/// Everything that is run, the longest searches first.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = two_by_two();
    cases.extend(one_fault());
    cases.extend(random_runs());
    cases.extend(mutants::all());
    cases.extend(long::all());
    cases
}

/// Two processes with two callers each, without faults.
fn two_by_two() -> Vec<Case> {
    vec![
        Case::whole("2 x 2, stream and line", IN_LINE),
        Case::whole("2 x 2, polling", POLLING),
        Case::whole(
            "2 x 2, line without a stream",
            Setup {
                fair: true,
                ..POLLING
            },
        ),
        Case::whole(
            "2 x 2, releases that are not awaited",
            Setup {
                unawaited: true,
                ..POLLING
            },
        ),
        Case::whole("2 x 2, a deadline and a single try", WITH_A_TRY),
    ]
}

/// Two processes with one caller each, and one fault of each kind.
fn one_fault() -> Vec<Case> {
    let one = |name, faults| Case::whole(name, with(faults));
    let n = NO_FAULTS;
    vec![
        Case::whole("2 x 1, a lost message", LOST),
        Case::whole("2 x 1, stream and line, a lost message", in_line(LOST)),
        one("2 x 1, an unclear error", Faults { unclear: 1, ..n }),
        one("2 x 1, a blocked document", Faults { blocked: 1, ..n }),
        one("2 x 1, a slow command", Faults { slow: 1, ..n }),
        Case::whole("2 x 1, a slow command that the driver repeats", REPEATED),
        one(
            "2 x 1, an unclear error and a slow command",
            Faults {
                unclear: 1,
                slow: 1,
                ..n
            },
        ),
        Case::whole("1 x 2, a slow command, expiry 1 s", SHORT),
        one("2 x 1, a cancelled call", Faults { cancelled: 1, ..n }),
        Case::whole("2 x 1, a crash, expiry 1 s", CRASH),
        Case::whole("2 x 1, stream and line, a crash, expiry 1 s", FOLLOWED),
        Case::whole("2 x 1, stream and line, a stream that stops", STOPPED),
        Case::whole(
            "2 x 1, line without a stream, a lost message",
            polling_in_line(LOST),
        ),
        Case::whole(
            "2 x 1, line without a stream, a slow command",
            polling_in_line(with(Faults { slow: 1, ..n })),
        ),
        Case::whole("3 x 1, line without a stream, a crash", DEAD),
        Case::whole("1 x 2, a lost message and a cancelled call", LOST_AND_CANCELLED),
        Case::whole(
            "1 x 3, a deadline and a single try, a slow command",
            ends_early(Faults { slow: 1, ..n }),
        ),
        Case::whole(
            "1 x 3, a deadline and a single try, a lost message",
            ends_early(Faults { lost: 1, ..n }),
        ),
    ]
}

/// The same in line without a stream.
const fn polling_in_line(setup: Setup) -> Setup {
    Setup { fair: true, ..setup }
}

/// One process with a caller that has a deadline and one that makes a single try.
const fn ends_early(faults: Faults) -> Setup {
    Setup {
        processes: 1,
        callers: 3,
        deadlines: true,
        tries: true,
        ..with(faults)
    }
}

fn random_runs() -> Vec<Case> {
    [
        ("3 x 4 again and again, stream and line, all faults", FLEET),
        (
            "3 x 4 again and again, polling, all faults",
            Setup {
                stream: false,
                fair: false,
                ..FLEET
            },
        ),
        (
            "3 x 4 again and again, line without a stream, all faults",
            Setup {
                stream: false,
                ..FLEET
            },
        ),
        (
            "8 x 8 again and again, stream and line, all faults",
            Setup {
                processes: 8,
                callers: 8,
                ..FLEET
            },
        ),
    ]
    .into_iter()
    .flat_map(|(name, setup)| [Case::random(name, setup), Case::random(name, setup).long()])
    .collect()
}

//! What is run: searches of every order, and random runs.

use crate::core::MS;
use crate::random;
use crate::search::{self, Found};
use crate::setup::{Caller, DEADLINE, Faults, NONE, PLAIN, Setup, Start, TRY};

/// One search, or one set of random runs.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) setup: Setup,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Every order, of this number of situations at most.
    Search(usize),
    /// This number of seeds, with this number of steps each.
    Random { seeds: u64, length: usize },
}

impl Case {
    pub(crate) fn run(&self) -> Found {
        match self.kind {
            Kind::Search(most) => search::search(&self.setup, most),
            Kind::Random { seeds, length } => random::runs(&self.setup, seeds, length),
        }
    }
}

/// Everything that is run.
pub(crate) fn all(is_long: bool) -> Vec<Case> {
    let mut list = List {
        is_long,
        cases: Vec::new(),
    };
    list.locks();
    list.cases
}

struct List {
    is_long: bool,
    cases: Vec<Case>,
}

impl List {
    fn add(&mut self, name: impl Into<String>, processes: Vec<Vec<Caller>>, faults: Faults) -> &mut Setup {
        let most = if self.is_long { 8_000_000 } else { 1_000_000 };
        let mut setup = Setup::new(processes, faults);
        setup.most_free = 1000_000 * MS;
        self.cases.push(Case {
            name: name.into(),
            setup,
            kind: Kind::Search(most),
        });
        let last = self.cases.len() - 1;
        &mut self.cases[last].setup
    }

    fn locks(&mut self) {
        let faults = [
            ("plain", NONE),
            ("lost", Faults { lost: 1, ..NONE }),
            ("unclear", Faults { unclear: 1, ..NONE }),
            ("late", Faults { slow: 3, ..NONE }),
            (
                "event",
                Faults {
                    lost_events: 1,
                    ..NONE
                },
            ),
            ("crash", Faults { crashes: 1, ..NONE }),
            ("cancel", Faults { cancelled: 1, ..NONE }),
            ("hold", Faults { holds: 3, ..NONE }),
            (
                "lost hold",
                Faults {
                    lost: 1,
                    holds: 2,
                    ..NONE
                },
            ),
        ];
        for (name, faults) in faults {
            self.add(format!("{name} 2x1"), vec![vec![PLAIN], vec![PLAIN]], faults);
            self.add(
                format!("{name} 1x2 deadline"),
                vec![vec![PLAIN, DEADLINE]],
                faults,
            );
            self.add(format!("{name} 1x2 try"), vec![vec![PLAIN, TRY]], faults);
        }
        self.add("plain 2x2", vec![vec![PLAIN; 2]; 2], NONE);
    }
}

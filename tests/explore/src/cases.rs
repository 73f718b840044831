//! What is run: searches of every order, and random runs.

use crate::core::{MS, Once};
use crate::random;
use crate::search::{self, Found};
use crate::setup::{Caller, DEADLINE, Faults, Finish, NONE, PLAIN, Setup, Start, TRY, Wants, set};

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
    list.rejections();
    list.leases_that_end();
    list.forced_releases();
    list.sets();
    list.permits();
    list.work_that_succeeds_once();
    list.detached_leases();
    list.transactions();
    list.shutdowns();
    list.streams();
    list.random_runs();
    list.cases
}

struct List {
    is_long: bool,
    cases: Vec<Case>,
}

/// The faults with their names.
type Named = (&'static str, Faults);

const LOST: Named = ("lost", Faults { lost: 1, ..NONE });
const UNCLEAR: Named = ("unclear", Faults { unclear: 1, ..NONE });
const BLOCKED: Named = ("blocked", Faults { blocked: 1, ..NONE });
const DOUBLED: Named = ("doubled", Faults { doubled: 1, ..NONE });
const LATE: Named = ("late", Faults { slow: 2, ..NONE });
const EVENT: Named = (
    "lost event",
    Faults {
        lost_events: 1,
        holds: 1,
        ..NONE
    },
);
const CRASH: Named = ("crash", Faults { crashes: 1, ..NONE });
const CANCEL: Named = ("cancel", Faults { cancelled: 1, ..NONE });
const HOLD: Named = ("hold", Faults { holds: 2, ..NONE });
const REJECTED: Named = ("rejected", Faults { rejected: 2, ..NONE });
const LOST_HOLD: Named = (
    "lost+hold",
    Faults {
        lost: 1,
        holds: 2,
        ..NONE
    },
);
const CANCEL_LOST: Named = (
    "cancel+lost",
    Faults {
        cancelled: 1,
        lost: 1,
        ..NONE
    },
);
const CANCEL_UNCLEAR: Named = (
    "cancel+unclear",
    Faults {
        cancelled: 1,
        unclear: 1,
        ..NONE
    },
);
const CANCEL_LATE: Named = (
    "cancel+late",
    Faults {
        cancelled: 1,
        slow: 2,
        ..NONE
    },
);

impl List {
    fn add(&mut self, name: impl Into<String>, processes: Vec<Vec<Caller>>, faults: Faults) -> &mut Setup {
        let most = if self.is_long { 3_000_000 } else { 60_000 };
        self.cases.push(Case {
            name: name.into(),
            setup: Setup::new(processes, faults),
            kind: Kind::Search(most),
        });
        let last = self.cases.len() - 1;
        &mut self.cases[last].setup
    }

    fn locks(&mut self) {
        self.add("plain 1x3", vec![vec![PLAIN; 3]], NONE);
        self.add("plain 3x1", vec![vec![PLAIN]; 3], NONE);
        self.add("plain 2x2", vec![vec![PLAIN; 2]; 2], NONE);
        self.add("plain 2x2 try", vec![vec![PLAIN, TRY]; 2], NONE);
        self.add("plain 2x2 deadline", vec![vec![PLAIN, DEADLINE]; 2], NONE);
        let late = ("late", Faults { slow: 3, ..NONE });
        let hold = ("hold", Faults { holds: 3, ..NONE });
        let deleted = (
            "deleted",
            Faults {
                deleted: 1,
                holds: 2,
                ..NONE
            },
        );
        for (name, faults) in [
            LOST,
            UNCLEAR,
            BLOCKED,
            DOUBLED,
            late,
            EVENT,
            CRASH,
            CANCEL,
            hold,
            deleted,
            LOST_HOLD,
            CANCEL_LOST,
            CANCEL_UNCLEAR,
            CANCEL_LATE,
        ] {
            self.add(format!("{name} 2x1"), vec![vec![PLAIN]; 2], faults);
            self.add(
                format!("{name} 1x2 deadline"),
                vec![vec![PLAIN, DEADLINE]],
                faults,
            );
            self.add(format!("{name} 1x2 try"), vec![vec![PLAIN, TRY]], faults);
            self.add(format!("{name} 1x3"), vec![vec![PLAIN; 3]], faults);
        }
        for (name, faults) in [CRASH, LOST, CANCEL] {
            self.add(format!("{name} 3x1"), vec![vec![PLAIN]; 3], faults);
            self.add(format!("{name} 2x2"), vec![vec![PLAIN; 2]; 2], faults);
        }
        let overdue = Faults {
            slow: 8,
            cancelled: 1,
            ..NONE
        };
        for (name, caller) in [("overdue", PLAIN), ("overdue long", PLAIN.expiring(120_000))] {
            self.add(format!("{name} 1x1"), vec![vec![caller]], overdue);
            self.add(format!("{name} 1x2"), vec![vec![caller; 2]], overdue);
        }
    }

    /// The server rejects commands because of its load.
    fn rejections(&mut self) {
        for (name, faults) in [
            ("one", Faults { rejected: 1, ..NONE }),
            ("three", Faults { rejected: 3, ..NONE }),
            (
                "hold",
                Faults {
                    rejected: 2,
                    holds: 2,
                    ..NONE
                },
            ),
            (
                "cancel",
                Faults {
                    rejected: 2,
                    cancelled: 1,
                    ..NONE
                },
            ),
            (
                "lost",
                Faults {
                    rejected: 1,
                    lost: 1,
                    ..NONE
                },
            ),
            (
                "unclear",
                Faults {
                    rejected: 2,
                    unclear: 1,
                    ..NONE
                },
            ),
            (
                "late",
                Faults {
                    rejected: 1,
                    slow: 2,
                    ..NONE
                },
            ),
        ] {
            self.add(format!("rejected {name} 2x1"), vec![vec![PLAIN]; 2], faults);
            self.add(
                format!("rejected {name} 1x2 deadline"),
                vec![vec![PLAIN, DEADLINE]],
                faults,
            );
            self.add(format!("rejected {name} 1x2 try"), vec![vec![PLAIN, TRY]], faults);
            self.add(format!("rejected {name} 2x2"), vec![vec![PLAIN; 2]; 2], faults);
        }
    }

    /// Renewals are lost, and replies come late.
    fn leases_that_end(&mut self) {
        let short = PLAIN.expiring(3000);
        for (name, faults) in [
            (
                "lost",
                Faults {
                    lost: 2,
                    slow: 1,
                    holds: 5,
                    ..NONE
                },
            ),
            (
                "slow",
                Faults {
                    slow: 4,
                    holds: 1,
                    ..NONE
                },
            ),
            (
                "doubled",
                Faults {
                    doubled: 1,
                    slow: 3,
                    holds: 1,
                    ..NONE
                },
            ),
            (
                "crash",
                Faults {
                    crashes: 1,
                    slow: 1,
                    holds: 2,
                    ..NONE
                },
            ),
        ] {
            self.add(format!("short {name} 2x1"), vec![vec![short]; 2], faults);
        }
    }

    /// An operator releases the lock while a copy of the holder's claim is on its way.
    fn forced_releases(&mut self) {
        let short = PLAIN.expiring(3000);
        let forced = Faults {
            forced: 1,
            holds: 4,
            ..NONE
        };
        for (name, start, faults) in [
            ("plain", Start::Plain, forced),
            ("late copy", Start::Plain, Faults { slow: 3, ..forced }),
            (
                "lost",
                Start::Plain,
                Faults {
                    lost: 1,
                    slow: 2,
                    ..forced
                },
            ),
            (
                "cancel",
                Start::Plain,
                Faults {
                    cancelled: 1,
                    slow: 2,
                    ..forced
                },
            ),
            ("copy", Start::Copied, forced),
            ("copy lost", Start::Copied, Faults { lost: 1, ..forced }),
            (
                "copy cancel",
                Start::Copied,
                Faults {
                    cancelled: 1,
                    ..forced
                },
            ),
            ("copy freed", Start::Freed, forced),
            ("copy freed lost", Start::Freed, Faults { lost: 1, ..forced }),
        ] {
            for callers in [[1, 1], [2, 1], [1, 2]] {
                let processes = callers.map(|number| vec![short; number]).to_vec();
                self.add(format!("forced {name} {callers:?}"), processes, faults)
                    .start = start;
            }
        }
    }

    fn sets(&mut self) {
        let (ab, bc, a, b) = (set(&["a", "b"]), set(&["b", "c"]), set(&["a"]), set(&["b"]));
        for (name, faults) in [
            ("plain", NONE),
            LOST,
            UNCLEAR,
            BLOCKED,
            LATE,
            CRASH,
            CANCEL,
            HOLD,
            REJECTED,
            CANCEL_LOST,
            EVENT,
        ] {
            self.add(format!("set {name} ab, ab"), vec![vec![ab], vec![ab]], faults);
            self.add(format!("set {name} ab, bc"), vec![vec![ab], vec![bc]], faults);
            self.add(format!("set {name} ab, b"), vec![vec![ab], vec![b]], faults);
            self.add(format!("set {name} b ab"), vec![vec![b, ab]], faults);
            self.add(format!("set {name} ab ab"), vec![vec![ab, ab]], faults);
            self.add(
                format!("set {name} ab, a, b"),
                vec![vec![ab], vec![a], vec![b]],
                faults,
            );
        }
        self.add(
            "set short ab, b",
            vec![vec![ab.expiring(3000)], vec![b]],
            Faults {
                lost: 1,
                holds: 4,
                ..NONE
            },
        );
        self.add("set plain ab b, a b", vec![vec![ab, b], vec![a, b]], NONE);
        self.add("set plain ab ab, ab", vec![vec![ab, ab], vec![ab]], NONE);
        for (name, faults) in [CANCEL, LOST, CRASH] {
            self.add(
                format!("set {name} ab ab, b"),
                vec![vec![ab, ab], vec![b]],
                faults,
            );
            self.add(
                format!("set {name} ab b, b b"),
                vec![vec![ab, b], vec![b, b]],
                faults,
            );
            self.add(
                format!("set {name} ab a, b a"),
                vec![vec![ab, a], vec![b, a]],
                faults,
            );
        }
        let all = Caller {
            is_try: true,
            limit: TRY.limit,
            ..ab
        };
        self.add("set plain try ab, b", vec![vec![all], vec![b]], NONE);
        self.add("set lost try ab b", vec![vec![all, b]], LOST.1);
    }

    fn permits(&mut self) {
        for width in [1, 2] {
            let permit = Caller {
                wants: Wants::Permit(width),
                ..PLAIN
            };
            let attempt = Caller {
                wants: Wants::Permit(width),
                ..TRY
            };
            let label = format!("permits of {width}");
            self.add(format!("{label} plain 1x3"), vec![vec![permit; 3]], NONE);
            self.add(format!("{label} plain 2x2"), vec![vec![permit; 2]; 2], NONE);
            self.add(
                format!("{label} plain 2x2 try"),
                vec![vec![permit, attempt]; 2],
                NONE,
            );
            for (name, faults) in [
                LOST,
                UNCLEAR,
                BLOCKED,
                REJECTED,
                EVENT,
                LATE,
                CRASH,
                CANCEL,
                HOLD,
                LOST_HOLD,
                CANCEL_LOST,
                CANCEL_UNCLEAR,
            ] {
                self.add(format!("{label} {name} 2x1"), vec![vec![permit]; 2], faults);
                self.add(format!("{label} {name} 1x2"), vec![vec![permit; 2]], faults);
                self.add(format!("{label} {name} 2x2"), vec![vec![permit; 2]; 2], faults);
                self.add(
                    format!("{label} {name} 1x3 try"),
                    vec![vec![permit, permit, attempt]],
                    faults,
                );
            }
        }
    }

    fn work_that_succeeds_once(&mut self) {
        let ends = &[Finish::Done, Finish::Release];
        let per_period = Caller {
            once: Some(Once::PerPeriod(3000)),
            ends,
            ..PLAIN
        };
        let kept = Caller {
            once: Some(Once::Kept(5000)),
            ends,
            ..PLAIN
        };
        for (label, caller) in [("once per period", per_period), ("once kept", kept)] {
            let attempt = Caller {
                is_try: true,
                limit: TRY.limit,
                ..caller
            };
            for (name, faults) in [
                ("plain", NONE),
                LOST,
                UNCLEAR,
                DOUBLED,
                LATE,
                CRASH,
                CANCEL,
                HOLD,
                LOST_HOLD,
                CANCEL_LOST,
                EVENT,
                REJECTED,
            ] {
                self.add(format!("{label} {name} 2x1"), vec![vec![caller]; 2], faults);
                self.add(
                    format!("{label} {name} 1x2 try"),
                    vec![vec![caller, attempt]],
                    faults,
                );
            }
            self.add(format!("{label} plain 2x2"), vec![vec![caller; 2]; 2], NONE);
            self.add(
                format!("{label} plain beside others"),
                vec![vec![caller], vec![PLAIN]],
                HOLD.1,
            );
            let short = caller.expiring(3000);
            self.add(
                format!("{label} short 2x1"),
                vec![vec![short]; 2],
                Faults {
                    lost: 2,
                    holds: 3,
                    ..NONE
                },
            );
        }
        let least = Caller {
            min_hold: 2000,
            ..PLAIN
        };
        for (name, faults) in [("plain", NONE), LOST, LATE, CRASH] {
            self.add(format!("least hold {name} 2x1"), vec![vec![least]; 2], faults);
        }
    }

    fn detached_leases(&mut self) {
        let detach = Caller {
            ends: &[Finish::Detach],
            ..PLAIN
        };
        let resume = Caller {
            wants: Wants::Lease,
            limit: Some(5000 * MS),
            ..PLAIN
        };
        let pair = Caller {
            wants: Wants::Locks(&["a", "b"]),
            ..detach
        };
        for (name, faults) in [
            ("plain", NONE),
            LOST,
            UNCLEAR,
            BLOCKED,
            DOUBLED,
            LATE,
            CRASH,
            CANCEL,
            HOLD,
            REJECTED,
            CANCEL_LOST,
            CANCEL_UNCLEAR,
        ] {
            self.add(
                format!("detach {name} 1, 1x1"),
                vec![vec![detach], vec![resume]],
                faults,
            );
            self.add(
                format!("detach {name} 1, 2x1"),
                vec![vec![detach], vec![resume], vec![resume]],
                faults,
            );
            self.add(
                format!("detach {name} 1, 1x2"),
                vec![vec![detach], vec![resume, resume]],
                faults,
            );
            self.add(
                format!("detach {name} and a caller"),
                vec![vec![detach, resume], vec![PLAIN]],
                faults,
            );
            self.add(
                format!("detach {name} ab"),
                vec![vec![pair], vec![resume, resume]],
                faults,
            );
        }
    }

    /// Transactions that commit only under the hold.
    fn transactions(&mut self) {
        let ends = &[Finish::Commit { marks: false }];
        let plain = Caller { ends, ..PLAIN };
        let ends = &[Finish::Commit { marks: true }, Finish::Release];
        let marking = Caller {
            once: Some(Once::Kept(5000)),
            ends,
            ..PLAIN
        };
        let two = Faults {
            unclear: 1,
            lost: 1,
            aborts: 1,
            ..NONE
        };
        for (name, faults) in [
            ("plain", Faults { aborts: 1, ..NONE }),
            LOST_HOLD,
            (
                "unclear",
                Faults {
                    unclear: 1,
                    aborts: 1,
                    holds: 1,
                    ..NONE
                },
            ),
            ("unclear+lost", two),
            (
                "late",
                Faults {
                    slow: 2,
                    holds: 1,
                    aborts: 1,
                    ..NONE
                },
            ),
            (
                "unclear+late",
                Faults {
                    slow: 2,
                    holds: 1,
                    unclear: 1,
                    ..NONE
                },
            ),
            (
                "cancel",
                Faults {
                    cancelled: 1,
                    aborts: 1,
                    slow: 1,
                    ..NONE
                },
            ),
            (
                "crash",
                Faults {
                    crashes: 1,
                    aborts: 1,
                    ..NONE
                },
            ),
            (
                "shutdown",
                Faults {
                    shutdowns: 1,
                    aborts: 1,
                    unclear: 1,
                    ..NONE
                },
            ),
            (
                "forced",
                Faults {
                    forced: 1,
                    holds: 2,
                    ..NONE
                },
            ),
        ] {
            for (label, caller) in [("commit", plain), ("commit done", marking)] {
                self.add(format!("{label} {name} 2x1"), vec![vec![caller]; 2], faults);
                let short = caller.expiring(3000);
                self.add(
                    format!("{label} short {name} 1x2"),
                    vec![vec![short, caller]],
                    faults,
                );
            }
            let pair = Caller {
                wants: Wants::Locks(&["a", "b"]),
                ..marking
            };
            self.add(format!("commit done ab {name}"), vec![vec![pair]], faults);
        }
    }

    fn shutdowns(&mut self) {
        let ends = &[Finish::Done, Finish::Release];
        let once = Caller {
            once: Some(Once::Kept(5000)),
            ends,
            ..PLAIN
        };
        let detach = Caller {
            ends: &[Finish::Detach],
            ..PLAIN
        };
        let resume = Caller {
            wants: Wants::Lease,
            limit: Some(5000 * MS),
            ..PLAIN
        };
        let permit = Caller {
            wants: Wants::Permit(2),
            ..PLAIN
        };
        let ab = set(&["a", "b"]);
        for (label, processes) in [
            ("a lock", vec![vec![PLAIN; 2], vec![PLAIN]]),
            ("a set", vec![vec![ab, ab], vec![ab]]),
            ("permits", vec![vec![permit; 2], vec![permit]]),
            ("work once", vec![vec![once; 2], vec![once]]),
            ("detachment", vec![vec![detach, resume], vec![resume]]),
        ] {
            for (name, faults) in [("plain", NONE), LOST, UNCLEAR, LATE, CANCEL] {
                let faults = Faults {
                    shutdowns: 1,
                    ..faults
                };
                self.add(format!("shutdown {label} {name}"), processes.clone(), faults);
            }
        }
    }

    /// Change streams that lose, repeat or end.
    fn streams(&mut self) {
        let permit = Caller {
            wants: Wants::Permit(1),
            ..PLAIN
        };
        for (label, caller) in [("lock", PLAIN), ("permit", permit), ("set", set(&["a", "b"]))] {
            for (name, faults) in [
                (
                    "lost",
                    Faults {
                        lost_events: 1,
                        holds: 4,
                        ..NONE
                    },
                ),
                (
                    "doubled",
                    Faults {
                        doubled_events: 2,
                        holds: 2,
                        ..NONE
                    },
                ),
                (
                    "closed",
                    Faults {
                        closed_streams: 1,
                        holds: 3,
                        ..NONE
                    },
                ),
            ] {
                self.add(
                    format!("events {name} {label} 2x1"),
                    vec![vec![caller]; 2],
                    faults,
                );
                let faults = Faults { holds: 1, ..faults };
                self.add(
                    format!("events {name} {label} 2x2"),
                    vec![vec![caller; 2]; 2],
                    faults,
                );
            }
        }
    }

    /// Many faults, and callers that come again.
    fn random_runs(&mut self) {
        let (ab, b) = (set(&["a", "b"]), set(&["b"]));
        let permit = Caller {
            wants: Wants::Permit(2),
            ..PLAIN
        };
        let done = &[Finish::Done, Finish::Release, Finish::Commit { marks: true }];
        let once = Caller {
            once: Some(Once::Kept(2000)),
            ends: done,
            ..PLAIN
        };
        let commit = Caller {
            ends: &[Finish::Release, Finish::Commit { marks: false }],
            ..PLAIN
        };
        let faults = Faults {
            lost: 50,
            unclear: 50,
            blocked: 50,
            rejected: 50,
            doubled: 50,
            slow: 200,
            cancelled: 100,
            crashes: 1,
            lost_events: 30,
            doubled_events: 30,
            closed_streams: 20,
            deleted: 50,
            shutdowns: 0,
            aborts: 20,
            forced: 0,
            holds: u16::MAX,
        };
        for (name, processes) in [
            ("locks 3x4", vec![vec![PLAIN, DEADLINE, TRY, commit]; 3]),
            ("short leases 3x3", vec![vec![PLAIN.expiring(3000); 3]; 3]),
            ("sets 3x4", vec![vec![ab, b, ab, set(&["a"])]; 3]),
            ("permits 3x4", vec![vec![permit; 4]; 3]),
            ("work once 3x3", vec![vec![once; 3]; 3]),
        ] {
            let setup = self.add(format!("random {name}"), processes, faults);
            setup.again = true;
            let length = 2000;
            let seeds = if self.is_long { 1000 } else { 10 };
            if let Some(case) = self.cases.last_mut() {
                case.kind = Kind::Random { seeds, length };
            }
        }
    }
}

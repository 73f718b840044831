//! What is run: searches of every order, and random runs.

use crate::core::{MS, Once, Span};
use crate::random;
use crate::search::{self, Found};
use crate::setup::{Caller, DEADLINE, Faults, Finish, PLAIN, Setup, Start, TRY, Wants, set};

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
    let cases = Vec::new();
    let mut list = List { is_long, cases };
    list.locks();
    list.leases_that_end();
    list.forced_releases();
    list.groups();
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

/// The callers of each process.
type Processes = Vec<Vec<Caller>>;

/// Each fault alone.
const ONE: [&str; 10] = [
    "",
    "lost",
    "unclear",
    "blocked",
    "doubled",
    "late*2",
    "crash",
    "cancel",
    "hold*2",
    "rejected*2",
];

const TWO: [&str; 5] = [
    "lost hold*2",
    "cancel lost",
    "cancel unclear",
    "cancel late*2",
    "lost-event hold",
];

impl List {
    /// A search with these faults. The longest ones are cut in the usual run.
    fn add(&mut self, label: &str, processes: &Processes, faults: &str) -> &mut Setup {
        let most = if self.is_long { 1_000_000 } else { 20_000 };
        let mut setup = Setup::new(processes.clone(), Faults::of(faults));
        setup.most_free = most_free(processes, &setup.faults);
        let name = format!("{label}: {faults}");
        let kind = Kind::Search(most);
        self.cases.push(Case { name, setup, kind });
        let last = self.cases.len() - 1;
        &mut self.cases[last].setup
    }

    /// Each of these with each of the faults.
    fn each(&mut self, processes: &[(&str, Processes)], faults: &[&[&str]]) {
        for faults in faults.iter().flat_map(|faults| faults.iter()) {
            for (label, processes) in processes {
                self.add(label, processes, faults);
            }
        }
    }

    fn locks(&mut self) {
        let few = [
            ("lock 2x1", vec![vec![PLAIN]; 2]),
            ("lock 1x2 deadline", vec![vec![PLAIN, DEADLINE]]),
            ("lock 1x2 try", vec![vec![PLAIN, TRY]]),
            ("lock 1x3", vec![vec![PLAIN; 3]]),
        ];
        self.each(
            &few,
            &[
                &ONE,
                &TWO,
                &["late*3", "hold*3", "deleted hold*2", "lost-event hold*4"],
            ],
        );
        let many = [
            ("lock 2x2", vec![vec![PLAIN; 2]; 2]),
            ("lock 2x2 try", vec![vec![PLAIN, TRY]; 2]),
            ("lock 2x2 deadline", vec![vec![PLAIN, DEADLINE]; 2]),
            ("lock 3x1", vec![vec![PLAIN]; 3]),
        ];
        self.each(&many, &[&["", "crash", "lost", "cancel"]]);
        let rejected = [
            "rejected",
            "rejected*3",
            "rejected*2 hold*2",
            "rejected*2 cancel",
            "rejected lost",
            "rejected*2 unclear",
            "rejected late*2",
        ];
        self.each(&few[..3], &[&rejected]);
        self.each(&many[..1], &[&rejected]);
        for (label, caller) in [("overdue", PLAIN), ("overdue long", PLAIN.expiring(120_000))] {
            for number in [1, 2] {
                self.add(
                    &format!("{label} 1x{number}"),
                    &vec![vec![caller; number]],
                    "late*8 cancel",
                );
            }
        }
    }

    /// Renewals are lost, and replies come late.
    fn leases_that_end(&mut self) {
        let short = [("short 2x1", vec![vec![PLAIN.expiring(3000)]; 2])];
        self.each(
            &short,
            &[&[
                "lost*2 late hold*5",
                "late*4 hold",
                "doubled late*3 hold",
                "crash late hold*2",
            ]],
        );
    }

    /// An operator releases the lock while a copy of the holder's claim is on its way.
    fn forced_releases(&mut self) {
        let short = PLAIN.expiring(3000);
        for (label, start, faults) in [
            ("forced", Start::Plain, ""),
            ("forced", Start::Plain, "late*3"),
            ("forced", Start::Plain, "lost late*2"),
            ("forced", Start::Plain, "cancel late*2"),
            ("forced copy", Start::Copied, ""),
            ("forced copy", Start::Copied, "lost"),
            ("forced copy", Start::Copied, "cancel"),
            ("forced copy freed", Start::Freed, ""),
            ("forced copy freed", Start::Freed, "lost"),
        ] {
            for callers in [[1, 1], [2, 1], [1, 2]] {
                let label = format!("{label} {callers:?}");
                let processes = callers.map(|number| vec![short; number]).to_vec();
                let setup = self.add(&label, &processes, &format!("{faults} forced hold*4"));
                (setup.start, setup.has_ghosts) = (start, start != Start::Plain);
            }
        }
    }

    /// Several claims, releases and renewals in one command.
    fn groups(&mut self) {
        let locks: Vec<Caller> = [&["a"], &["b"], &["c"], &["d"], &["e"]]
            .map(|name| set(name))
            .to_vec();
        for faults in ONE {
            self.add("group 1x5", &vec![locks.clone()], faults).pool = 3;
            self.add(
                "group 1x3",
                &vec![locks[..3].to_vec()],
                &format!("{faults} hold*3"),
            )
            .pool = 3;
        }
    }

    fn sets(&mut self) {
        let (ab, bc, a, b) = (set(&["a", "b"]), set(&["b", "c"]), set(&["a"]), set(&["b"]));
        let few = [
            ("set ab, ab", vec![vec![ab], vec![ab]]),
            ("set ab, bc", vec![vec![ab], vec![bc]]),
            ("set ab, b", vec![vec![ab], vec![b]]),
            ("set b ab", vec![vec![b, ab]]),
            ("set ab ab", vec![vec![ab, ab]]),
            ("set ab, a, b", vec![vec![ab], vec![a], vec![b]]),
            (
                "set ab try, b",
                vec![
                    vec![Caller {
                        is_try: true,
                        limit: TRY.limit,
                        ..ab
                    }],
                    vec![b],
                ],
            ),
        ];
        let two = ["crash hold", "crash lost", "cancel hold", "rejected*2 cancel"];
        self.each(&few, &[&ONE, &TWO, &two]);
        let many = [
            ("set ab b, a b", vec![vec![ab, b], vec![a, b]]),
            ("set ab ab, ab", vec![vec![ab, ab], vec![ab]]),
            ("set ab ab, b", vec![vec![ab, ab], vec![b]]),
            ("set ab b, b b", vec![vec![ab, b], vec![b, b]]),
            ("set ab a, b a", vec![vec![ab, a], vec![b, a]]),
        ];
        self.each(&many, &[&["", "cancel", "lost", "crash", "rejected*2", "late"]]);
        self.add(
            "set ab short, b",
            &vec![vec![ab.expiring(3000)], vec![b]],
            "lost hold*4",
        );
    }

    fn permits(&mut self) {
        for (width, [two, pair, try_of_three, three, four, tries]) in [
            (
                1,
                [
                    "permits of 1 2x1",
                    "permits of 1 1x2",
                    "permits of 1 1x3 try",
                    "permits of 1 1x3",
                    "permits of 1 2x2",
                    "permits of 1 2x2 try",
                ],
            ),
            (
                2,
                [
                    "permits of 2 2x1",
                    "permits of 2 1x2",
                    "permits of 2 1x3 try",
                    "permits of 2 1x3",
                    "permits of 2 2x2",
                    "permits of 2 2x2 try",
                ],
            ),
        ] {
            let wants = Wants::Permit(width);
            let (permit, attempt) = (Caller { wants, ..PLAIN }, Caller { wants, ..TRY });
            let few = [
                (two, vec![vec![permit]; 2]),
                (pair, vec![vec![permit; 2]]),
                (try_of_three, vec![vec![permit, permit, attempt]]),
                (four, vec![vec![permit; 2]; 2]),
            ];
            self.each(&few, &[&ONE, &TWO]);
            self.each(
                &[
                    (three, vec![vec![permit; 3]]),
                    (tries, vec![vec![permit, attempt]; 2]),
                ],
                &[&[""]],
            );
        }
    }

    fn work_that_succeeds_once(&mut self) {
        let ends = &[Finish::Done, Finish::Release];
        let of = |once| Caller {
            once: Some(once),
            ends,
            ..PLAIN
        };
        let (period, kept) = (of(Once::PerPeriod(3000)), of(Once::Kept(5000)));
        let attempt = |caller| Caller {
            is_try: true,
            limit: TRY.limit,
            ..caller
        };
        let least = Caller {
            min_hold: 2000,
            ..PLAIN
        };
        let few = [
            ("once per period 2x1", vec![vec![period]; 2]),
            ("once per period 1x2 try", vec![vec![period, attempt(period)]]),
            ("once kept 2x1", vec![vec![kept]; 2]),
            ("once kept 1x2 try", vec![vec![kept, attempt(kept)]]),
            ("least hold 2x1", vec![vec![least]; 2]),
        ];
        self.each(&few, &[&ONE, &TWO]);
        let many = [
            ("once per period 2x2", vec![vec![period; 2]; 2]),
            ("once kept 2x2", vec![vec![kept; 2]; 2]),
            ("once kept, plain", vec![vec![kept], vec![PLAIN]]),
        ];
        self.each(&many, &[&["", "hold*2"]]);
        let short = [
            ("once per period short 2x1", vec![vec![period.expiring(3000)]; 2]),
            ("once kept short 2x1", vec![vec![kept.expiring(3000)]; 2]),
        ];
        self.each(&short, &[&["lost*2 hold*3", "late*3 hold*2"]]);
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
        let few = [
            ("detach, resume", vec![vec![detach], vec![resume]]),
            (
                "detach, resume, resume",
                vec![vec![detach], vec![resume], vec![resume]],
            ),
            ("detach, resume resume", vec![vec![detach], vec![resume, resume]]),
            ("detach resume, plain", vec![vec![detach, resume], vec![PLAIN]]),
            ("detach ab, resume resume", vec![vec![pair], vec![resume, resume]]),
        ];
        self.each(&few, &[&ONE, &TWO[..4]]);
    }

    /// Transactions that commit only under the hold.
    fn transactions(&mut self) {
        let plain = Caller {
            ends: &[Finish::Commit { marks: false }],
            ..PLAIN
        };
        let ends = &[Finish::Commit { marks: true }, Finish::Release];
        // The mark stands for longer than the lease.
        let marking = Caller {
            once: Some(Once::Kept(60_000)),
            ends,
            ..PLAIN
        };
        let pair = Caller {
            wants: Wants::Locks(&["a", "b"]),
            ..marking
        };
        let cases = [
            ("commit 2x1", vec![vec![plain]; 2]),
            ("commit short 1x2", vec![vec![plain.expiring(3000), plain]]),
            ("commit done 2x1", vec![vec![marking]; 2]),
            (
                "commit done short 1x2",
                vec![vec![marking.expiring(3000), marking]],
            ),
            ("commit done ab", vec![vec![pair]]),
        ];
        self.each(
            &cases,
            &[&[
                "abort",
                "lost hold*2",
                "unclear abort hold",
                "unclear lost abort",
                "late*2 hold abort",
                "unclear late*2 hold",
                "cancel abort late",
                "crash abort",
                "shutdown abort unclear",
                "forced hold*2",
            ]],
        );
    }

    fn shutdowns(&mut self) {
        let once = Caller {
            once: Some(Once::Kept(5000)),
            ends: &[Finish::Done, Finish::Release],
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
        let cases = [
            ("shutdown, locks", vec![vec![PLAIN; 2], vec![PLAIN]]),
            ("shutdown, sets", vec![vec![ab, ab], vec![ab]]),
            ("shutdown, permits", vec![vec![permit; 2], vec![permit]]),
            ("shutdown, once", vec![vec![once; 2], vec![once]]),
            ("shutdown, leases", vec![vec![detach, resume], vec![resume]]),
        ];
        self.each(
            &cases,
            &[&[
                "shutdown",
                "shutdown lost",
                "shutdown unclear",
                "shutdown late*2",
                "shutdown cancel",
                "shutdown rejected*2",
            ]],
        );
    }

    /// Change streams that lose, repeat or end.
    fn streams(&mut self) {
        let permit = Caller {
            wants: Wants::Permit(1),
            ..PLAIN
        };
        let ab = set(&["a", "b"]);
        let few = [
            ("events lock 2x1", vec![vec![PLAIN]; 2]),
            ("events permit 2x1", vec![vec![permit]; 2]),
            ("events set 2x1", vec![vec![ab]; 2]),
        ];
        self.each(
            &few,
            &[&[
                "lost-event hold*4",
                "doubled-event*2 hold*2",
                "closed-stream hold*3",
            ]],
        );
        let many = [
            ("events lock 2x2", vec![vec![PLAIN; 2]; 2]),
            ("events permit 2x2", vec![vec![permit; 2]; 2]),
            ("events set 2x2", vec![vec![ab; 2]; 2]),
        ];
        self.each(
            &many,
            &[&["lost-event hold", "doubled-event*2 hold", "closed-stream hold"]],
        );
    }

    /// Many faults, and callers that come again.
    fn random_runs(&mut self) {
        let (ab, a, b) = (set(&["a", "b"]), set(&["a"]), set(&["b"]));
        let permit = Caller {
            wants: Wants::Permit(2),
            ..PLAIN
        };
        let ends = &[Finish::Done, Finish::Release, Finish::Commit { marks: true }];
        let once = Caller {
            once: Some(Once::Kept(40_000)),
            ends,
            ..PLAIN
        };
        let commit = Caller {
            ends: &[Finish::Release, Finish::Commit { marks: false }],
            ..PLAIN
        };
        let length = 2000;
        let seeds = if self.is_long { 1000 } else { 10 };
        let faults = "lost*50 unclear*50 blocked*50 rejected*50 doubled*50 late*200 cancel*100 crash lost-event*30 \
             doubled-event*30 closed-stream*20 deleted*50 abort*20 hold*60000";
        for (label, processes) in [
            ("random locks 3x4", vec![vec![PLAIN, DEADLINE, TRY, commit]; 3]),
            ("random short leases 3x3", vec![vec![PLAIN.expiring(3000); 3]; 3]),
            ("random sets 3x4", vec![vec![ab, b, ab, a]; 3]),
            ("random permits 3x4", vec![vec![permit; 4]; 3]),
            ("random work once 3x3", vec![vec![once; 3]; 3]),
        ] {
            self.add(label, &processes, faults).again = true;
            if let Some(case) = self.cases.last_mut() {
                case.kind = Kind::Random { seeds, length };
            }
        }
    }
}

/// The longest time for which a caller may wait for what is free, with these faults.
fn most_free(processes: &Processes, faults: &Faults) -> Span {
    let is_set = |caller: &Caller| matches!(caller.wants, Wants::Locks([_, _, ..]));
    let ms = match faults {
        Faults { forced: 1.., .. } => 12_000,
        Faults {
            lost: 0,
            slow: 0,
            lost_events: 0,
            closed_streams: 0,
            unclear,
            ..
        } => {
            // A command for several locks has a limit of 500 ms, and so long it may arrive.
            let has_set = processes.iter().flatten().any(is_set);
            if has_set && *unclear > 0 { 600 } else { 150 }
        }
        _ => 40_000,
    };
    ms * MS
}

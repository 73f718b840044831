//! What is run: searches of every order, and random runs.

use crate::core::MS;
use crate::random;
use crate::search::{self, Found};
use crate::setup::{Setup, Start};

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
    // The usual run is cut where a case would take longer than half a second.
    let most = if is_long { 2_000_000 } else { 14_000 };
    let mut list = List { is_long, most, cases };
    list.locks();
    list.most = if is_long { 400_000 } else { most };
    list.rejections();
    list.leases_that_end();
    list.forced_releases();
    list.forced_before_the_end();
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
    /// The number of situations after which a search is cut.
    most: usize,
    cases: Vec<Case>,
}

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

/// Two faults, of which one hides the other.
const TWO: [&str; 5] = [
    "lost hold*2",
    "cancel lost",
    "cancel unclear",
    "cancel late*2",
    "lost-event hold",
];

impl List {
    /// A search. The longest ones are cut in the usual run.
    fn add(&mut self, processes: &str, faults: &str) -> &mut Case {
        self.cases.push(Case {
            name: format!("{processes}: {faults}"),
            setup: Setup::new(processes, faults),
            kind: Kind::Search(self.most),
        });
        let last = self.cases.len() - 1;
        &mut self.cases[last]
    }

    /// Each of these processes with each of the faults.
    fn each(&mut self, processes: &[&str], faults: &[&[&str]]) {
        for faults in faults.iter().flat_map(|faults| faults.iter()) {
            for processes in processes {
                self.add(processes, faults);
            }
        }
    }

    fn locks(&mut self) {
        let few = ["lock, lock", "lock deadline", "lock try", "lock lock lock"];
        self.each(
            &few,
            &[
                &ONE,
                &TWO,
                &["late*3", "hold*3", "deleted hold*2", "lost-event hold*4"],
            ],
        );
        let many = [
            "lock lock, lock lock",
            "lock try, lock try",
            "lock deadline, lock deadline",
            "lock, lock, lock",
        ];
        self.each(&many, &[&["", "crash", "lost", "cancel"]]);
        // A claim may arrive after its last release; one with a long lease is released once more after that.
        for processes in ["lock", "lock lock"] {
            self.add(processes, "late*8 cancel").setup.has_ghosts = true;
            // One that arrives within the server's limit after its end in the process is released after that.
            let case = self.add(processes, "late*8 cancel");
            case.name.push_str(" within its limit");
            case.setup.latest = 11_000 * MS;
        }
        self.each(&["lock-long", "lock-long lock-long"], &[&["late*8 cancel"]]);
    }

    /// The server rejects commands because of its load.
    fn rejections(&mut self) {
        let rejected = [
            "rejected",
            "rejected*3",
            "rejected*2 hold*2",
            "rejected*2 cancel",
            "rejected lost",
            "rejected*2 unclear",
            "rejected late*2",
        ];
        self.each(
            &["lock, lock", "lock deadline", "lock try", "lock lock, lock lock"],
            &[&rejected],
        );
    }

    /// Renewals are lost, and replies come late.
    fn leases_that_end(&mut self) {
        let faults = [
            "lost*2 late hold*5",
            "late*4 hold",
            "doubled late*3 hold",
            "crash late hold*2",
        ];
        self.each(&["lock-short, lock-short"], &[&faults]);
    }

    /// An operator releases the lock while a copy of the holder's claim is on its way.
    fn forced_releases(&mut self) {
        for (start, faults) in [
            (Start::Plain, ""),
            (Start::Plain, " late*3"),
            (Start::Plain, " lost late*2"),
            (Start::Plain, " cancel late*2"),
            (Start::Copied, ""),
            (Start::Copied, " lost"),
            (Start::Copied, " cancel"),
            (Start::Freed, ""),
            (Start::Freed, " lost"),
        ] {
            let processes = [
                "lock-short, lock-short",
                "lock-short lock-short, lock-short",
                "lock-short, lock-short lock-short",
            ];
            for processes in processes {
                let case = self.add(processes, &format!("forced hold*4{faults}"));
                case.name = format!("{} {start:?}", case.name);
                (case.setup.start, case.setup.has_ghosts) = (start, start != Start::Plain);
            }
        }
    }

    /// The same before a hold ends in another way.
    fn forced_before_the_end(&mut self) {
        let processes = [
            "kept, kept",
            "period, period",
            "detach, resume",
            "lock-least, lock-least",
        ];
        self.each(
            &processes,
            &[&["forced hold*2", "forced lost hold*2", "forced late*2 hold"]],
        );
    }

    /// Several claims, releases and renewals in one command.
    fn groups(&mut self) {
        for faults in ONE {
            for (processes, hold) in [("a b c d e", ""), ("a b c", " hold*3")] {
                self.add(processes, &format!("{faults}{hold}")).setup.pool = 3;
            }
        }
    }

    fn sets(&mut self) {
        let few = [
            "ab, ab",
            "ab, bc",
            "ab, b",
            "b ab",
            "ab ab",
            "ab, a, b",
            "ab-try, b",
        ];
        let two = ["crash hold", "crash lost", "cancel hold", "rejected*2 cancel"];
        self.each(&few, &[&ONE, &TWO, &two]);
        let many = ["ab b, a b", "ab ab, ab", "ab ab, b", "ab b, b b", "ab a, b a"];
        self.each(&many, &[&["", "cancel", "lost", "crash", "rejected*2", "late"]]);
        self.add("ab-short, b", "lost hold*4");
    }

    fn permits(&mut self) {
        let of_one = [
            "permit1, permit1",
            "permit1 permit1",
            "permit1 permit1 permit1-try",
        ];
        let of_two = [
            "permit2, permit2",
            "permit2 permit2",
            "permit2 permit2 permit2-try",
        ];
        let many = [
            "permit1 permit1, permit1 permit1",
            "permit2 permit2, permit2 permit2",
        ];
        for processes in [&of_one[..], &of_two[..], &many[..]] {
            self.each(processes, &[&ONE, &TWO]);
        }
        let plain = [
            "permit1 permit1 permit1",
            "permit2 permit2 permit2",
            "permit1 permit1-try, permit1 permit1-try",
            "permit2 permit2-try, permit2 permit2-try",
        ];
        self.each(&plain, &[&[""]]);
    }

    fn work_that_succeeds_once(&mut self) {
        let few = [
            "period, period",
            "period period-try",
            "kept, kept",
            "kept kept-try",
            "lock-least, lock-least",
        ];
        self.each(&few, &[&ONE, &TWO]);
        self.each(
            &[
                "period period, period period",
                "kept kept, kept kept",
                "kept, lock",
                "kept lock",
                "lock-least lock",
                "period period",
            ],
            &[&["", "hold*2"]],
        );
        self.each(
            &["period-short, period-short", "kept-short, kept-short"],
            &[&["lost*2 hold*3", "late*3 hold*2"]],
        );
    }

    fn detached_leases(&mut self) {
        let few = [
            "detach, resume",
            "detach, resume, resume",
            "detach, resume resume",
            "detach resume, lock",
            "detach-ab, resume resume",
        ];
        self.each(&few, &[&ONE, &TWO[..4]]);
    }

    /// Transactions that commit only under the hold.
    fn transactions(&mut self) {
        let processes = [
            "commit, commit",
            "commit-short commit",
            "done, done",
            "done-short done",
            "done-ab",
        ];
        let faults = [
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
        ];
        self.each(&processes, &[&faults]);
    }

    fn shutdowns(&mut self) {
        let processes = [
            "lock lock, lock",
            "ab ab, ab",
            "permit2 permit2, permit2",
            "kept kept, kept",
            "detach resume, resume",
        ];
        let faults = [
            "shutdown",
            "shutdown lost",
            "shutdown unclear",
            "shutdown late*2",
            "shutdown cancel",
            "shutdown rejected*2",
        ];
        self.each(&processes, &[&faults]);
    }

    /// Change streams that lose, repeat or end.
    fn streams(&mut self) {
        let few = ["lock, lock", "permit1, permit1", "ab, ab"];
        self.each(
            &few,
            &[&[
                "lost-event hold*5",
                "doubled-event*2 hold*2",
                "closed-stream hold*3",
            ]],
        );
        let many = [
            "lock lock, lock lock",
            "permit1 permit1, permit1 permit1",
            "ab ab, ab ab",
        ];
        self.each(
            &many,
            &[&["lost-event hold", "doubled-event*2 hold", "closed-stream hold"]],
        );
    }

    /// Many faults, and callers that come again.
    fn random_runs(&mut self) {
        let faults = "lost*50 unclear*50 blocked*50 rejected*50 doubled*50 late*200 cancel*100 crash lost-event*30 \
             doubled-event*30 closed-stream*20 deleted*50 abort*20 hold*60000";
        for processes in [
            "lock lock-deadline lock-try commit, lock lock-deadline lock-try commit, lock lock-deadline lock-try commit",
            "lock-short lock-short lock-short, lock-short lock-short lock-short, lock-short lock-short lock-short",
            "ab b ab a, ab b ab a, ab b ab a",
            "permit2 permit2 permit2 permit2, permit2 permit2 permit2 permit2, permit2 permit2 permit2 permit2",
            "permit1 permit1-try permit1, permit1 permit1-try permit1, permit1 permit1-try permit1",
            "kept period kept-try, kept period kept-try, lock-least a ab",
            "done done done, done done done, done done done",
        ] {
            let seeds = if self.is_long { 5000 } else { 100 };
            let case = self.add(processes, faults);
            case.name = format!("random: {processes}");
            case.kind = Kind::Random { seeds, length: 2000 };
            (case.setup.again, case.setup.most_free) = (true, 40_000 * MS);
        }
    }
}

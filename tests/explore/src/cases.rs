//! What is run: searches of every order, and random runs.

mod locks;

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
    let most = if is_long { 2_000_000 } else { 12_000 };
    let mut list = List { is_long, most, cases };
    list.locks();
    list.hand_overs();
    list.most = if is_long { 400_000 } else { most };
    list.rejections();
    list.leases_that_end();
    list.forced_releases();
    list.forced_before_the_end();
    list.forced_releases_of_several();
    list.refusals();
    list.options_of_holds();
    list.margins();
    list.without_streams();
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
const ONE: &str = "| lost | unclear | blocked | doubled | late*2 | crash | cancel | hold*2 | rejected*2";

/// Two faults, of which one hides the other.
const TWO: &str = "lost hold*2 | cancel lost | cancel unclear | cancel late*2 | lost-event hold";

/// The parts of a row. An empty part has no fault.
fn parts(row: &str) -> impl Iterator<Item = &str> {
    row.split('|').map(str::trim)
}

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

    /// A search that begins so.
    fn begun(&mut self, start: Start, processes: &str, faults: &str) -> &mut Case {
        let case = self.add(processes, faults);
        case.name = format!("{} {start:?}", case.name);
        case.setup.start = start;
        case
    }

    /// Each of these processes with each of the faults.
    fn each(&mut self, processes: &str, faults: &[&str]) {
        for faults in faults.iter().flat_map(|faults| parts(faults)) {
            for processes in parts(processes) {
                self.add(processes, faults);
            }
        }
    }

    /// Several claims, releases and renewals in one command.
    fn groups(&mut self) {
        for faults in parts(ONE) {
            for (processes, hold) in [("a b c d e", ""), ("a b c", " hold*3")] {
                self.add(processes, &format!("{faults}{hold}")).setup.pool = 3;
            }
        }
    }

    fn sets(&mut self) {
        let few = "ab, ab | ab, bc | ab, b | b ab | ab ab | ab, a, b | ab-try, b";
        let two = "crash hold | crash lost | cancel hold | rejected*2 cancel";
        self.each(few, &[ONE, TWO, two]);
        let many = "ab b, a b | ab ab, ab | ab ab, b | ab b, b b | ab a, b a";
        self.each(many, &["| cancel | lost | crash | rejected*2 | late"]);
        self.add("ab-short, b", "lost hold*4");
        // Who waits for the first lock does not ask for the second one, so another caller asks for that, and again after a loss.
        self.begun(Start::Crashed, "ab b, a-short", "lost");
    }

    fn permits(&mut self) {
        let of_one = "permit1, permit1 | permit1 permit1 | permit1 permit1 permit1-try";
        let of_two = "permit2, permit2 | permit2 permit2 | permit2 permit2 permit2-try";
        let many = "permit1 permit1, permit1 permit1 | permit2 permit2, permit2 permit2";
        for processes in [of_one, of_two, many] {
            self.each(processes, &[ONE, TWO]);
        }
        let plain = "permit1 permit1 permit1 | permit2 permit2 permit2 | \
            permit1 permit1-try, permit1 permit1-try | permit2 permit2-try, permit2 permit2-try";
        self.each(plain, &[""]);
    }

    fn work_that_succeeds_once(&mut self) {
        let few = "period, period | period period-try | kept, kept | kept kept-try | \
            lock-least, lock-least";
        self.each(few, &[ONE, TWO]);
        let many = "period period, period period | kept kept, kept kept | kept, lock | lock kept | \
            lock-least lock-least | period period";
        self.each(many, &["| hold*2"]);
        let short = "period-short, period-short | kept-short, kept-short";
        self.each(short, &["lost*2 hold*3 | late*3 hold*2"]);
    }

    fn detached_leases(&mut self) {
        let few = "detach, resume | detach, resume, resume | detach, resume resume | \
            detach resume, lock | detach-ab, resume resume | permit1-detach, resume permit1";
        // A stream plays no part.
        let (two, _) = TWO.rsplit_once('|').expect("there are several");
        self.each(few, &[ONE, two]);
        let faults = "| lost | unclear | crash | cancel | late*2";
        self.each("permit2-detach, resume, permit2", &[faults]);
    }

    /// Transactions that commit only under the hold.
    fn transactions(&mut self) {
        let processes = "commit, commit | commit-short commit | done, done | done-short done | done-ab";
        let faults = "abort | lost hold*2 | unclear abort hold | unclear lost abort | late*2 hold abort | \
            unclear late*2 hold | cancel abort late | crash abort | shutdown abort unclear | \
            forced hold*2";
        self.each(processes, &[faults]);
        self.each("commit commit", &["abort | unclear | cancel"]);
    }

    fn shutdowns(&mut self) {
        let processes = "lock lock, lock | ab ab, ab | ab, b | permit2 permit2, permit2 | kept kept, kept | \
            detach resume, resume";
        let faults = "shutdown | shutdown lost | shutdown unclear | shutdown late*2 | shutdown cancel | \
            shutdown rejected*2";
        self.each(processes, &[faults]);
    }

    /// Change streams that lose, repeat or end.
    fn streams(&mut self) {
        let few = "lock, lock | permit1, permit1 | ab, ab";
        let faults = "lost-event hold*5 | doubled-event*2 hold*2 | closed-stream hold*3";
        self.each(few, &[faults]);
        // A try asks while the stream is being opened.
        self.add("lock, lock lock-try", "hold*2");
        let many = "lock lock, lock lock | permit1 permit1, permit1 permit1 | ab ab, ab ab";
        let faults = "lost-event hold | doubled-event*2 hold | closed-stream hold";
        self.each(many, &[faults]);
    }

    /// Many faults, and callers that come again.
    fn random_runs(&mut self) {
        let faults = "lost*50 unclear*50 blocked*50 rejected*50 doubled*50 late*200 cancel*100 crash lost-event*30 \
             doubled-event*30 closed-stream*20 deleted*50 abort*20 hold*60000 refused*10 unsent*50 refused-stream \
             forced*20 shutdown";
        for processes in [
            "lock lock-deadline lock-try commit, lock lock-deadline lock-try commit, lock lock-deadline lock-try commit",
            "lock-short lock-short lock-short, lock-short lock-short lock-short, lock-short lock-short lock-short",
            "ab b ab a, ab b ab a, detach-ab b resume a",
            "permit2 permit2 permit2 permit2, permit2 permit2 permit2-detach resume, permit2 permit2 permit2 resume",
            "permit1 permit1-try permit1, permit1 permit1-try permit1, permit1 permit1-try permit1",
            "kept period kept-try detach, kept period kept-try resume, lock-least a ab",
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

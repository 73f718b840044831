//! The time that the core takes: a whole cycle, and the longest sections, for which the engine holds its mutex.
//!
//! `cargo bench -p mongolock-explore --bench core`

use std::hint::black_box;
use std::time::Instant;

use self::core::{
    Conf, Core, Effect, Ending, Event, Join, Key, Luck, MS, Notice, Places, Rules, Time, Wanted,
};
use self::protocol::{Document, Name, Reply, Row, Sight, Then, Value, When, apply};

#[path = "../../../mongolock/src/core/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the benchmark needs a part of it"
)]
mod core;

#[path = "../../../mongolock/src/protocol/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the core and the benchmark need a part of it"
)]
mod protocol;

#[path = "../../../mongolock/src/timing.rs"]
#[allow(dead_code, reason = "the core needs a part of it")]
mod timing;

const RULES: Rules = Rules {
    expiry: 30_000,
    renew_every: 10_000,
    max_hold: None,
    min_hold: 0,
    once: None,
};

/// Ids from the operating system, as in the engine.
struct System(u64);

impl Luck for System {
    fn id(&mut self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().1
    }

    fn chance(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0 | 1
    }
}

/// A core whose commands are answered at once.
struct Lab {
    core: Core<u32>,
    luck: System,
    now: Time,
    /// Whether claims get their locks, or another program has them.
    wins: bool,
    commands: u32,
    cycles: u32,
    /// The time of each event, in nanoseconds.
    sections: Vec<u128>,
}

impl Lab {
    fn new(wins: bool) -> Self {
        let conf = Conf {
            mark: [7; 6],
            owner: "host:1".into(),
            may_listen: true,
            margin: 0,
            retry: (10 * MS, 800 * MS),
            places: Places::of_pool(16),
        };
        let now = Time(1_000_000 * MS);
        Self {
            core: Core::new(conf, now),
            luck: System(0),
            now,
            wins,
            commands: 0,
            cycles: 0,
            sections: Vec::new(),
        }
    }

    fn feed(&mut self, event: Event<u32>) -> Vec<Effect<u32>> {
        self.now = self.now + 100;
        let begun = Instant::now();
        self.core.handle(self.now, &mut self.luck, event);
        self.sections.push(begun.elapsed().as_nanos());
        self.core.take_effects().collect()
    }

    fn join(&mut self, name: &Name) -> Vec<Effect<u32>> {
        let join = Join {
            limit: None,
            is_try: false,
            is_inside_hold: false,
            cell: 1,
        };
        self.feed(Event::Join(Wanted::Lock(name.clone()), RULES, join))
    }

    fn reply(&self, row: &Row) -> Reply {
        let now = self.now.0 / MS;
        let holder = match &row.when {
            When::Own { id, token, .. } => Some((id.clone(), token.unwrap_or(1))),
            _ if self.wins => None,
            _ => Some(("other#1".into(), 1)),
        };
        let mut document = holder.map(|(id, token)| Document {
            lock_id: Value::Text(id),
            acquired_at: Value::Date(now),
            expires_at: Value::Date(now + 30_000),
            token: Value::Long(token),
        });
        let is_applied = apply(row, &mut document, now).ok();
        let sight = document.map(|document| Sight {
            document,
            now: Some(now),
        });
        Reply { is_applied, sight }
    }

    /// Answers all commands until there are none, and returns the holds.
    fn answer(&mut self, effects: Vec<Effect<u32>>) -> Vec<Key> {
        let (mut left, mut holds) = (effects, Vec::new());
        while let Some(effect) = left.pop() {
            match effect {
                Effect::Run(flight, rows, ..) => {
                    self.commands += 1;
                    let replies = rows.iter().map(|row| self.reply(row)).collect();
                    left.extend(self.feed(Event::Ran(flight, Ok(replies))));
                }
                Effect::Look(flight, looks, _) => {
                    self.commands += 1;
                    let saw = looks.iter().map(|_| Vec::new()).collect();
                    left.extend(self.feed(Event::Looked(flight, Ok(saw))));
                }
                Effect::Watch(number, _) => left.extend(self.feed(Event::Opened(number))),
                Effect::Notify(_, Notice::Held(hold, ..)) => holds.push(hold),
                _ => {}
            }
        }
        holds
    }

    /// A call, its hold and its release.
    fn cycle(&mut self, name: &Name) {
        let effects = self.join(name);
        for hold in self.answer(effects) {
            let effects = self.feed(Event::End(hold, Ending::Release, Some(1)));
            self.cycles += 1;
            black_box(self.answer(effects));
        }
    }

    /// Does what is due within this time.
    fn pass(&mut self, milliseconds: i64) {
        self.now = self.now + milliseconds * MS;
        while self.core.next_due().is_some_and(|at| at <= self.now) {
            let effects = self.feed(Event::Tick);
            self.answer(effects);
        }
    }
}

/// Prints the median and the least time of a run, of seven times this number.
fn time(label: &str, number: u32, mut run: impl FnMut()) {
    let mut all: Vec<f64> = (0..7)
        .map(|_| {
            let begun = Instant::now();
            (0..number).for_each(|_| run());
            begun.elapsed().as_secs_f64() * 1e9 / f64::from(number)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    println!("{label}: {:.0} ns, at least {:.0}", all[3], all[0]);
}

/// How often the sections of a run are measured.
const RUNS: usize = 9;

/// Prints the longest section of a run. Each run has the same sections, and of each the least time counts: the system may take the
/// processor from the thread in any of them.
fn longest(label: &str, mut run: impl FnMut() -> Lab) {
    let mut lab = run();
    for _ in 1..RUNS {
        let again = run();
        assert_eq!(lab.sections.len(), again.sections.len());
        for (least, section) in lab.sections.iter_mut().zip(again.sections) {
            *least = (*least).min(section);
        }
    }
    let longest = lab.sections.iter().max().map_or(0, |longest| longest / 1000);
    println!("{label}: {} commands, longest section {longest} µs", lab.commands);
}

/// A lab with a call for each of these names.
fn joined(wins: bool, names: &[Name]) -> Lab {
    let mut lab = Lab::new(wins);
    for name in names {
        let effects = lab.join(name);
        lab.answer(effects);
    }
    lab
}

fn main() {
    let names: Vec<Name> = (0..20_000).map(|index| format!("name-{index}").into()).collect();
    let (held, others) = names.split_at(10_000);
    let mut luck = System(0);
    time("an id of the operating system", 100_000, || {
        black_box(luck.id());
    });
    // The replies are made here, and take a part of the time.
    let lab = Lab::new(true);
    let row = Row {
        name: names[0].clone(),
        when: When::Free { margin: 0 },
        then: Then::Claim {
            id: "host:1#1".into(),
            expiry: 30_000,
            tokens: 1000,
        },
    };
    time("the two replies of a cycle", 100_000, || {
        black_box((lab.reply(&row), lab.reply(&row)));
    });
    let mut lab = Lab::new(true);
    time("a cycle of one name", 100_000, || {
        lab.sections.clear();
        // After a row of its own holds the process would yield.
        lab.now = lab.now + 110 * MS;
        lab.cycle(&names[0]);
    });
    assert_eq!(lab.cycles, 700_000);
    let (mut lab, mut index) = (Lab::new(true), 0);
    let mut in_turn = |lab: &mut Lab| {
        lab.sections.clear();
        lab.now = lab.now + 110;
        index = (index + 1) % 1000;
        lab.cycle(&others[index]);
    };
    time("a cycle of 1,000 names in turn", 100_000, || in_turn(&mut lab));
    let mut lab = joined(true, held);
    time("the same beside 10,000 holds and their renewals", 50_000, || {
        in_turn(&mut lab);
    });
    longest("10,000 holds are renewed for 20 s", || {
        let mut lab = joined(true, held);
        (lab.sections, lab.commands) = (Vec::new(), 0);
        (0..200).for_each(|_| lab.pass(100));
        lab
    });
    longest(
        "10,000 calls for 10,000 names, and a stream that opens over them",
        || joined(false, held),
    );
    longest("10,000 awaited names for 2 s", || {
        let mut lab = joined(false, held);
        (lab.sections, lab.commands) = (Vec::new(), 0);
        (0..100).for_each(|_| lab.pass(20));
        lab
    });
}

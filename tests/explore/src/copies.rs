//! A core is copied, as a process that is forked or restored from a snapshot, and both go on: no claim of one has the id of a claim of
//! the other that was made after the copy.

use std::collections::HashSet;

use crate::core::{Core, Effect, Ending, Event, Key, Notice, Time, Wanted};
use crate::network::{Cell, Role};
use crate::process::{Counter, Process};
use crate::protocol::{Document, LockId, Name, Reply, Row, Sight, Then, apply};
use crate::setup::{PLAIN, Setup};

/// The number of copies.
const COPIES: usize = 500;

/// A process whose claims get their locks at once.
#[derive(Clone)]
struct Lab {
    core: Core<Cell>,
    now: Time,
    ids: Vec<LockId>,
}

impl Lab {
    fn feed(&mut self, random: &mut u64, event: Event<Cell>) {
        self.now = self.now + 200_000;
        self.core.handle(self.now, &mut Counter(random, 0), event);
        let effects: Vec<_> = self.core.take_effects().collect();
        for effect in effects {
            match effect {
                Effect::Run(flight, rows, ..) => self.answer(random, flight, &rows),
                Effect::Notify(_, Notice::Held(hold, ..)) => {
                    self.feed(random, Event::End(hold, Ending::Release, None));
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, random: &mut u64, flight: Key, rows: &[Row]) {
        let now = self.now.0 / 1000;
        let reply = |row: &Row| {
            let mut document = Some(Document::default());
            let is_applied = apply(row, &mut document, now).ok();
            let sight = document.map(|document| Sight {
                document,
                now: Some(now),
            });
            Reply { is_applied, sight }
        };
        let id = |row: &Row| match &row.then {
            Then::Claim { id, .. } => Some(id.clone()),
            _ => None,
        };
        self.ids.extend(rows.iter().filter_map(id));
        self.feed(random, Event::Ran(flight, Ok(rows.iter().map(reply).collect())));
    }

    fn call(&mut self, random: &mut u64, name: &str) {
        let (caller, round, role) = (0, 0, Role::Call);
        let join = PLAIN.join(false, Cell { caller, round, role });
        let wanted = Wanted::Lock(Name::from(name));
        self.feed(random, Event::Join(wanted, PLAIN.rules(), join));
    }
}

/// The number of ids that two claims have, and the number of claims.
pub(crate) fn ids_twice() -> (usize, usize) {
    let (mut random, now) = (0, Time(1_000_000_000));
    let mut lab = Lab {
        core: Process::new(0, 1, &Setup::new("lock", ""), now).core,
        now,
        ids: Vec::new(),
    };
    let (mut all, mut twice) = (HashSet::new(), 0);
    for round in 0..COPIES {
        let mut copy = lab.clone();
        let before = lab.ids.len();
        for which in [&mut copy, &mut lab] {
            for name in ["a", "b", "c"].iter().take(1 + round % 3) {
                which.call(&mut random, name);
            }
            for id in &which.ids[before..] {
                twice += usize::from(!all.insert(id.clone()));
            }
        }
    }
    (twice, all.len())
}

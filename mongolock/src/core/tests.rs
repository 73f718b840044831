//! The core alone: which commands it sends, what it says, and when.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::*;
use crate::protocol::{self, Document, Id, IdKind, Ms, Name, Reply, Row, Sight, Then};
use crate::timing::{RELEASE_REPLY_LIMIT, REQUEST_LIMIT};

const RULES: Rules = Rules {
    expiry: 12_000,
    renew_every: 4_000,
    max_hold: None,
    min_hold: 0,
    once: None,
};

/// Random numbers that are no random numbers.
struct Counter(u64);

impl Luck for Counter {
    fn id(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn chance(&mut self) -> u64 {
        1
    }
}

/// A core, documents, and the commands that have no reply yet.
struct World {
    core: Core<u32>,
    now: Time,
    luck: Counter,
    documents: BTreeMap<Name, Document>,
    sent: VecDeque<(Key, Vec<Row>, Span)>,
    told: Vec<(u32, Notice)>,
}

impl World {
    fn new() -> Self {
        let conf = Conf {
            mark: [1; 6],
            owner: "anna".into(),
            may_listen: false,
            margin: 0,
            retry: (50 * MS, 1000 * MS),
            places: Places::of_pool(16),
        };
        Self {
            core: Core::new(conf, Time(0)),
            now: Time(0),
            luck: Counter(0),
            documents: BTreeMap::new(),
            sent: VecDeque::new(),
            told: Vec::new(),
        }
    }

    fn feed(&mut self, event: Event<u32>) -> Option<Key> {
        let caller = self.core.handle(self.now, &mut self.luck, event);
        for effect in self.core.take_effects() {
            match effect {
                Effect::Run(key, rows, _, limit) => self.sent.push_back((key, rows, limit)),
                Effect::Notify(cell, notice) => self.told.push((cell, notice)),
                _ => {}
            }
        }
        caller
    }

    /// The time passes until then, and what is due happens.
    fn until(&mut self, ms: Ms) {
        let end = Time(ms * MS);
        while let Some(at) = self.core.next_due().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.feed(Event::Tick);
        }
        self.now = end;
    }

    /// The first command runs, and its reply arrives.
    fn replies(&mut self) {
        let (key, rows, _) = self.sent.pop_front().expect("a command was sent");
        let now = self.now.0 / MS;
        let run = |row: &Row| {
            let mut document = self.documents.remove(&row.name);
            let is_applied = protocol::apply(row, &mut document, now).ok();
            let sight = document.clone().map(|document| Sight {
                document,
                now: Some(now),
            });
            self.documents
                .extend(document.map(|document| (row.name.clone(), document)));
            Reply { is_applied, sight }
        };
        let replies = rows.iter().map(run).collect();
        self.feed(Event::Ran(key, Ok(replies)));
    }

    /// The first command fails.
    fn fails(&mut self, kind: FaultKind) {
        let (key, ..) = self.sent.pop_front().expect("a command was sent");
        let error = Arc::new(std::fmt::Error);
        let fault = Fault {
            kind,
            may_be_applied: true,
            error,
        };
        self.feed(Event::Ran(key, Err(fault)));
    }

    /// A call for a lock begins.
    fn calls(&mut self, cell: u32, name: &str, rules: Rules, limit: Option<Ms>) {
        let join = Join {
            limit: limit.map(|limit| limit * MS),
            is_try: false,
            is_inside_hold: false,
            cell,
        };
        self.feed(Event::Join(Wanted::Lock(name.into()), rules, join));
    }

    /// A call acquires this lock. Returns its hold, and the end of its lease in milliseconds.
    fn acquires(&mut self, name: &str, rules: Rules) -> (Key, Ms) {
        self.calls(0, name, rules, None);
        self.replies();
        match self.told.pop() {
            Some((_, Notice::Held(hold, _, until))) => (hold, until.0 / MS),
            other => panic!("{other:?}"),
        }
    }

    /// The names in each command without a reply.
    fn names(&self) -> Vec<String> {
        let names = |rows: &Vec<Row>| rows.iter().map(|row| &*row.name).collect::<Vec<_>>().join(" ");
        self.sent.iter().map(|(_, rows, _)| names(rows)).collect()
    }

    /// The failure that was told last.
    fn failure(&mut self) -> CallFailure {
        match self.told.pop() {
            Some((_, Notice::Failed(failure))) => *failure,
            other => panic!("{other:?}"),
        }
    }

    /// Another process holds this lock for long.
    fn is_held_by_another(&mut self, name: &str) {
        let id = Id::new([2; 6], IdKind::Single, 5).text("bert");
        let row = Row {
            name: name.into(),
            when: protocol::When::Free { margin: 0 },
            then: Then::Claim {
                id,
                expiry: 1_000_000,
                tokens: 1,
            },
        };
        let mut document = None;
        assert!(matches!(protocol::apply(&row, &mut document, 0), Ok(true)));
        self.documents.insert(name.into(), document.unwrap());
    }
}

#[test]
fn renewals_go_together_that_are_due_within_a_twelfth_of_a_lease() {
    let mut world = World::new();
    for (name, at) in [("a", 0), ("b", 1000), ("c", 1001)] {
        world.until(at);
        assert_eq!(world.acquires(name, RULES).1, at + 11_878);
    }
    world.until(3999);
    assert!(world.names().is_empty());
    world.until(4000);
    assert_eq!(world.names(), ["a b"]);
    assert_eq!(world.sent[0].2, 2000 * MS, "a sixth of the lease");
    world.replies();
    assert!(matches!(world.told[..], [(0, Notice::Extended(end)), _] if end == Time(15_878 * MS)));
    world.until(5000);
    assert!(world.names().is_empty());
    world.until(5001);
    assert_eq!(world.names(), ["c"]);
    world.replies();
    world.until(8000);
    assert_eq!(world.names(), ["a b"]);
}

#[test]
fn a_renewal_whose_document_is_blocked_goes_alone_until_it_succeeds() {
    let mut world = World::new();
    for name in ["a", "b"] {
        world.acquires(name, RULES);
    }
    world.until(4000);
    world.fails(FaultKind::Blocked);
    assert_eq!(world.names(), ["a", "b"], "each alone");
    world.replies();
    world.fails(FaultKind::Blocked);
    world.until(4099);
    assert!(world.names().is_empty());
    for at in (41..=80).map(|tenth| tenth * 100) {
        world.until(at);
        assert_eq!(world.sent.back().map(|(_, rows, _)| rows.len()), Some(1));
        assert_eq!(world.names().contains(&"a".to_owned()), at == 8000);
        while let [name, ..] = &world.names()[..] {
            if name == "b" && at < 8000 {
                world.fails(FaultKind::Blocked)
            } else {
                world.replies()
            }
        }
    }
    world.until(12_000);
    assert_eq!(world.names(), ["a b"]);
}

#[test]
fn renewals_whose_connection_was_cut_are_repeated_together() {
    let mut world = World::new();
    for name in ["a", "b"] {
        world.acquires(name, RULES);
    }
    world.until(4000);
    world.fails(FaultKind::Failed);
    world.until(4099);
    assert!(world.names().is_empty());
    world.until(4100);
    assert_eq!(world.names(), ["a b"]);
}

#[test]
fn a_lease_ends_that_is_not_renewed() {
    // A lease that may have been renewed is released, when the server has ended it.
    for (late, is_released) in [(500, false), (501, true)] {
        let mut world = World::new();
        let rules = Rules {
            max_hold: Some(5000),
            ..RULES
        };
        world.acquires("a", rules);
        world.until(4000);
        world.until(4000 + late);
        world.replies();
        world.until(15_877);
        assert!(matches!(world.told[..], [(0, Notice::Extended(_))]) && world.names().is_empty());
        world.until(15_878);
        assert!(matches!(
            world.told[..],
            [_, (0, Notice::Lost(LossReason::Expired))]
        ));
        world.until(15_999);
        assert!(world.names().is_empty());
        world.until(16_000);
        assert_eq!(world.names().len(), usize::from(is_released));
    }
    let mut world = World::new();
    world.acquires("a", RULES);
    let due = [4000, 6100, 8200, 10_300];
    for at in due {
        world.until(at - 1);
        assert!(world.names().is_empty(), "{at}");
        world.until(at);
        assert_eq!(world.names(), ["a"]);
        world.sent.clear();
    }
    world.until(12_000);
    assert!(matches!(world.told[..], [(0, Notice::Lost(LossReason::Expired))]));
    assert!(matches!(world.sent[0].1[0].then, Then::End { .. }));
}

#[test]
fn a_call_says_for_how_long_its_lock_has_had_no_reply() {
    let failure = |last_reply: Ms, is_held: bool| {
        let mut world = World::new();
        if is_held {
            world.is_held_by_another("a");
        }
        world.calls(0, "a", RULES, Some(3000));
        let mut first = None;
        for at in 0..=3000 {
            world.until(at);
            while at <= last_reply && !world.sent.is_empty() {
                world.replies();
            }
            if !world.sent.is_empty() {
                first.get_or_insert(at);
            }
        }
        (world.failure(), first)
    };
    let (silent, _) = failure(-1, false);
    assert_eq!(
        (silent.cause, silent.silent_for, silent.seen),
        (Cause::Timeout, Span::MAX, None)
    );
    let (held, _) = failure(3000, true);
    assert!(held.silent_for == 0 && held.seen.is_some());
    let (held, asked) = failure(1000, true);
    assert_eq!(
        held.silent_for,
        (3000 - asked.unwrap()) * MS,
        "since the first request without a reply"
    );
}

#[test]
fn a_call_says_for_how_long_a_release_has_had_no_reply() {
    let mut world = World::new();
    let (hold, _) = world.acquires("a", RULES);
    let other = Rules { min_hold: 1, ..RULES };
    world.calls(1, "a", other, Some(3000));
    world.until(1000);
    world.feed(Event::End(hold, Ending::Release, Some(0)));
    world.until(3000);
    assert_eq!(world.failure().silent_for, 2000 * MS);
    // The release is repeated, and the one that waits for it learns that it has no reply.
    let ms = |time: std::time::Duration| Ms::try_from(time.as_millis()).unwrap();
    assert_eq!(world.names(), ["a", "a"]);
    world.sent.pop_back();
    world.until(1000 + ms(RELEASE_REPLY_LIMIT) - 1);
    assert_eq!(world.told.len(), 0);
    world.until(1000 + ms(RELEASE_REPLY_LIMIT));
    assert!(matches!(world.told[..], [(0, Notice::Ended(Err(None)))]));
}

#[test]
fn a_call_without_a_limit_ends_when_there_is_no_reply_for_a_minute() {
    let minute = Ms::try_from(REQUEST_LIMIT.as_millis()).unwrap();
    for last_reply in [-1, 70_000] {
        let mut world = World::new();
        world.is_held_by_another("a");
        world.calls(0, "a", RULES, None);
        let mut replied = 0;
        while world.now.0 < last_reply * MS {
            let at = world.core.next_due().unwrap();
            world.until(at.0 / MS + 1);
            while !world.sent.is_empty() {
                world.replies();
                replied = world.now.0 / MS;
            }
        }
        world.until(replied + minute - 1);
        assert!(world.told.is_empty());
        world.until(replied + minute);
        assert_eq!(world.failure().cause, Cause::Unanswered);
    }
}

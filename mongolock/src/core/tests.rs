//! One core: which commands it sends, what it says, and exactly when.

mod commits;
mod failures;
mod permits;
mod questions;
mod stream;
mod times;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::*;
use crate::protocol::{self, Document, Ms, Name, Reply, Row, Sight, Then, Value, When, permit_id};

const RULES: Rules = Rules {
    expiry: 12_000,
    renew_every: 4_000,
    max_hold: None,
    min_hold: 0,
    once: None,
};

struct Counter(u64);

impl Luck for Counter {
    fn id(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn chance(&mut self) -> u64 {
        0x9e37_79b9_7f4a_7c15
    }
}

/// A core, documents, the commands that have no reply yet, and what the callers were notified of.
struct One {
    core: Core<u32>,
    now: Time,
    luck: Counter,
    documents: BTreeMap<Name, Document>,
    sent: VecDeque<(Key, Vec<Row>, Span)>,
    looks: VecDeque<(Key, Vec<Name>)>,
    told: Vec<Notice>,
    watched: Vec<(u32, Option<Vec<Name>>)>,
    reports: Vec<Report<u32>>,
}

impl One {
    fn new() -> Self {
        Self::with_streams(false)
    }

    /// A core that may use change streams, or may not.
    fn with_streams(may_listen: bool) -> Self {
        let conf = Conf {
            mark: [1; 6],
            owner: "anna".into(),
            may_listen,
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
            looks: VecDeque::new(),
            told: Vec::new(),
            watched: Vec::new(),
            reports: Vec::new(),
        }
    }

    fn feed(&mut self, event: Event<u32>) {
        self.core.handle(self.now, &mut self.luck, event);
        self.performs();
    }

    fn performs(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                Effect::Run(key, rows, _, limit) => self.sent.push_back((key, rows, limit)),
                Effect::Look(key, names, _) => self.looks.push_back((key, names)),
                Effect::Notify(_, notice) => self.told.push(notice),
                Effect::Watch(number, names) => self.watched.push((number, names)),
                Effect::Report(report) => self.reports.push(report),
                Effect::Idle => {}
            }
        }
    }

    /// The time goes on until then, and what is due happens.
    fn until(&mut self, ms: Ms) {
        self.until_time(Time(ms * MS));
    }

    fn until_time(&mut self, end: Time) {
        while let Some(at) = self.core.next_due().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.feed(Event::Tick);
        }
        self.now = end;
    }

    fn run(&mut self, row: &Row) -> Reply {
        let (now, mut document) = (self.now.0 / MS, self.documents.remove(&row.name));
        let is_applied = protocol::apply(row, &mut document, now).ok();
        let sight = document.clone().map(|document| Sight {
            document,
            now: Some(now),
        });
        self.documents
            .extend(document.map(|document| (row.name.clone(), document)));
        Reply { is_applied, sight }
    }

    /// The first command takes effect, and its reply arrives; or it fails.
    fn ends(&mut self, failed: Option<FaultKind>) {
        let (key, rows, _) = self.sent.pop_front().expect("a command was sent");
        let result = match failed {
            Some(kind) => Err(fault(kind)),
            None => Ok(rows.iter().map(|row| self.run(row)).collect()),
        };
        self.feed(Event::Ran(key, result));
    }

    fn calls(&mut self, rules: Rules, name: &str, limit: Option<Ms>) {
        self.joins_with(rules, Wanted::Lock(name.into()), limit, 0);
    }

    fn joins(&mut self, wanted: Wanted, limit: Option<Ms>) -> Key {
        self.joins_with(RULES, wanted, limit, 0)
    }

    /// A call with this cell.
    fn joins_with(&mut self, rules: Rules, wanted: Wanted, limit: Option<Ms>, cell: u32) -> Key {
        let join = Join {
            limit: limit.map(|limit| limit * MS),
            is_try: false,
            is_inside_hold: false,
            cell,
        };
        let key = self
            .core
            .handle(self.now, &mut self.luck, Event::Join(wanted, rules, join));
        self.performs();
        key.expect("a call has a key")
    }

    /// Acquires these locks. Returns the hold of the last one.
    fn acquires(&mut self, rules: Rules, names: &[&str]) -> Key {
        let holds = names.iter().map(|name| {
            self.calls(rules, name, None);
            self.ends(None);
            match self.told.pop() {
                Some(Notice::Held(hold, _, until)) => {
                    assert_eq!(until - self.now, 11_878 * MS, "the lease without its margin");
                    hold
                }
                other => panic!("{other:?}"),
            }
        });
        holds.last().expect("there are names")
    }

    /// Acquires a lock with this cell.
    fn acquires_with(&mut self, cell: u32, name: &str) {
        self.joins_with(RULES, Wanted::Lock(name.into()), None, cell);
        self.ends(None);
    }

    /// What the document of a lock says.
    fn sight(&self, name: &str) -> Sight {
        let (document, now) = (self.documents[name].clone(), Some(self.now.0 / MS));
        Sight { document, now }
    }

    /// All commands and looks take effect, and their replies arrive.
    fn replies(&mut self) {
        while self.next_replies() {}
    }

    /// The first command, or the first look, takes effect, and its reply arrives. Returns whether there was one.
    fn next_replies(&mut self) -> bool {
        if !self.sent.is_empty() {
            self.ends(None);
        } else if let Some((key, names)) = self.looks.pop_front() {
            let saw = names.iter().map(|name| self.saw(name)).collect();
            self.feed(Event::Looked(key, Ok(saw)));
        } else {
            return false;
        }
        true
    }

    /// What a look says of a lock, or of all permits of a semaphore.
    fn saw(&self, name: &Name) -> Saw {
        let numbered = self
            .documents
            .keys()
            .filter(|own| permit_id::awaited(own) == &**name);
        let saw = numbered.map(|own| (permit_id::number(own).unwrap_or(0), self.sight(own)));
        saw.collect()
    }

    /// The hold that a caller has just got.
    fn hold(&mut self) -> Option<Key> {
        let hold = |notice| match notice {
            Notice::Held(hold, ..) => Some(hold),
            _ => None,
        };
        self.told.drain(..).find_map(hold)
    }

    fn until_sent(&mut self) {
        while self.sent.is_empty() && self.looks.is_empty() {
            let due = self.core.next_due().expect("something is due");
            self.now = due.max(self.now);
            self.feed(Event::Tick);
        }
    }

    /// The next hold, if each command has its reply at once.
    fn waits_for_hold(&mut self) -> Key {
        loop {
            self.until_sent();
            self.ends(None);
            if let Some(hold) = self.hold() {
                return hold;
            }
        }
    }

    /// The names in each command that is sent by then, and by no earlier millisecond.
    fn sent_at(&mut self, ms: Ms) -> Vec<String> {
        let before = self.sent.len();
        self.until(ms - 1);
        assert_eq!(self.sent.len(), before, "before {ms} ms");
        self.until(ms);
        let names = |rows: &Vec<Row>| rows.iter().map(|row| &*row.name).collect::<Vec<_>>().join(" ");
        self.sent.iter().map(|(_, rows, _)| names(rows)).collect()
    }

    /// Why the call fails, which it does at this time and no earlier.
    fn failure_at(&mut self, ms: Ms) -> CallFailure {
        self.until(ms - 1);
        assert!(self.told.is_empty(), "before {ms} ms");
        self.until(ms);
        match self.told.pop() {
            Some(Notice::Failed(failure)) => *failure,
            other => panic!("{other:?}"),
        }
    }

    /// A program of another kind has this lock for long.
    fn is_held_by_another(&mut self, name: &str) {
        let (id, expiry, tokens) = ("bert".into(), 1_000_000, 1);
        let reply = self.run(&Row {
            name: name.into(),
            when: When::Free { margin: 0 },
            then: Then::Claim { id, expiry, tokens },
        });
        assert_eq!(reply.is_applied, Some(true));
    }
}

/// What a document says whose lease ends then. The time of the server is 0.
pub(super) fn sight(id: &str, token: i64, left: Ms) -> Sight {
    let document = Document {
        lock_id: Value::Text(id.into()),
        acquired_at: Value::Date(0),
        expires_at: Value::Date(left),
        token: Value::Long(token),
    };
    let now = Some(0);
    Sight { document, now }
}

/// A fault of this kind, of a command that may have been applied.
fn fault(kind: FaultKind) -> Fault {
    Fault {
        kind,
        may_be_applied: true,
        error: Arc::new(std::fmt::Error),
    }
}

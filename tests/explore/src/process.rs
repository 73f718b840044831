//! A process: its core, and its callers.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::core::{Conf, Core, Key, Luck, MS, Places, Time};
use crate::network::{Cell, Role};
use crate::protocol::{LockId, Name, News};
use crate::setup::Setup;

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) core: Core<Cell>,
    pub(crate) callers: Vec<State>,
    /// How often each caller has come.
    pub(crate) rounds: Vec<u8>,
    pub(crate) phase: Phase,
    /// Its core has said so after a shutdown.
    pub(crate) is_idle: bool,
    /// The filter of its change stream, and what that has reported.
    pub(crate) stream: Option<(u32, Option<Arc<[Name]>>)>,
    pub(crate) events: VecDeque<Told>,
    pub(crate) awaited: Vec<Awaited>,
    /// The number of ids that were drawn. What differs only in it is the same situation.
    ids: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Open,
    Draining,
    Closed,
    Dead,
}

/// Who waits for the end of a hold, or for the outcome of a transaction.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Awaited {
    pub(crate) cell: Cell,
    pub(crate) since: Time,
    /// What has become of the hold before, and until when it would have been relied on.
    pub(crate) before: Before,
    pub(crate) until: Time,
    /// The leases that it is to become: without a handle they are discarded.
    pub(crate) leases: Vec<(Name, LockId)>,
}

/// What has become of a hold before its end.
#[derive(Debug, Clone, Hash)]
pub(crate) enum Before {
    Held,
    /// It was lost, and its holder knows that.
    Lost,
    /// Other documents have replaced those in which it had these tokens; those of the hold itself.
    Replaced(Vec<(Name, i64)>, Vec<i64>),
}

/// What a change stream tells a process.
#[derive(Debug, Clone, Hash)]
pub(crate) enum Told {
    Opened(u32),
    News(News),
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum State {
    Outside,
    Waits(Waits),
    Holds(Holds),
    /// Its hold is lost, and it is not done yet.
    Lost(Key),
    Gone,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Waits {
    pub(crate) names: Arc<[Name]>,
    pub(crate) waiter: Option<Key>,
    pub(crate) begun: Time,
    pub(crate) deadline: Option<Time>,
    /// Since when it could have what it wants.
    pub(crate) could_since: Option<Time>,
    /// What it wants has been free ever since; or, of a lease, there.
    pub(crate) was_free: bool,
    /// A command that was sent later has said that something is held.
    pub(crate) has_heard: bool,
    /// One of its locks has had a mark meanwhile.
    pub(crate) was_marked: bool,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Holds {
    pub(crate) names: Arc<[Name]>,
    pub(crate) hold: Key,
    pub(crate) tokens: Vec<i64>,
    pub(crate) until: Time,
    /// Each document, with the id and the last token that its claim has there.
    pub(crate) claims: Vec<(Name, LockId, i64)>,
    /// It is not renewed beyond this time.
    pub(crate) ends_by: Time,
    pub(crate) has_committed: bool,
}

/// Random numbers that are counted, and bits for pauses.
pub(crate) struct Counter<'a>(pub(crate) &'a mut u64, pub(crate) u64);

impl Luck for Counter<'_> {
    fn id(&mut self) -> u64 {
        *self.0 += 1;
        *self.0
    }

    fn chance(&mut self) -> u64 {
        self.1
    }
}

impl Process {
    pub(crate) fn new(number: usize, callers: usize, setup: &Setup, now: Time) -> Self {
        let conf = Conf {
            mark: mark_of(number),
            owner: format!("p{number}").into(),
            may_listen: setup.may_listen && Places::may_listen(setup.pool),
            margin: setup.margin,
            retry: (50 * MS, 1000 * MS),
            places: Places::of_pool(setup.pool),
        };
        Self {
            core: Core::new(conf, now),
            callers: vec![State::Outside; callers],
            rounds: vec![0; callers],
            phase: Phase::Open,
            is_idle: false,
            stream: None,
            events: VecDeque::new(),
            awaited: Vec::new(),
            ids: 0,
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.phase != Phase::Dead
    }

    pub(crate) fn cell(&self, caller: usize, role: Role) -> Cell {
        Cell {
            caller: u8::try_from(caller).unwrap_or(u8::MAX),
            round: self.rounds[caller],
            role,
        }
    }

    pub(crate) fn handle(&mut self, now: Time, chance: u64, event: crate::core::Event<Cell>) -> Option<Key> {
        self.core.handle(now, &mut Counter(&mut self.ids, chance), event)
    }

    pub(crate) fn waits(&self) -> impl Iterator<Item = &Waits> {
        self.callers.iter().filter_map(|caller| match caller {
            State::Waits(waits) => Some(waits),
            _ => None,
        })
    }

    pub(crate) fn holds(&self) -> impl Iterator<Item = &Holds> {
        self.callers.iter().filter_map(|caller| match caller {
            State::Holds(holds) => Some(holds),
            _ => None,
        })
    }
}

/// The mark in the ids of a process.
pub(crate) fn mark_of(number: usize) -> [u8; 6] {
    [0, 0, 0, 0, 0, u8::try_from(number).unwrap_or(u8::MAX)]
}

impl Hash for Process {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.core, &self.callers, &self.rounds).hash(state);
        (self.phase, self.is_idle, &self.events, &self.awaited).hash(state);
        self.stream.as_ref().map(|(number, _)| number).hash(state);
    }
}

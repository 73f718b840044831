use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use mongodb::bson::DateTime;
use tokio::time::Instant;

use super::rule::{Circle, World};
use crate::lease::Lease;
use crate::line::Lines;
use crate::store::{Holds, NestedWait, ProviderMark};
use crate::sync::lock;
use crate::timing::DEADLOCK_HOPS;
use crate::{permit_id, trace};

/// The environment variable with the `lockId`s of the holds inside which this process runs, one a line.
pub(crate) const OUTER_HOLDS: &str = "MONGOLOCK_HOLDS";

/// The largest number of holds that a document lists: those of the callers that have waited longest. A deadlock of others is
/// missed.
const MOST_HOLDS: usize = 100;

/// The waits of a provider whose callers hold something.
pub(crate) struct Waits {
    lines: Arc<Lines>,
    mark: ProviderMark,
    /// The holds of other processes inside which this process runs.
    outer: Box<[Arc<str>]>,
    state: Mutex<WaitsState>,
}

#[derive(Default)]
struct WaitsState {
    last: u64,
    waits: BTreeMap<u64, Wait>,
    /// The waits whose callers hold a lock of this name, or a permit of this semaphore.
    holding: HashMap<Arc<str>, BTreeSet<u64>>,
}

struct Wait {
    name: Arc<str>,
    since: Instant,
    /// How many holders the name has when it is full: as many as a semaphore has permits.
    width: usize,
    holds: Vec<Arc<Lease>>,
    /// The guards that the task has acquired, once the document says so.
    shown: Option<Vec<Arc<Lease>>>,
    told: Told,
}

/// The deadlock of a wait.
#[derive(Default)]
struct Deadlock {
    /// The names of the one that was found last; none if it is over.
    names: Vec<String>,
    /// Whether one was reported: the later ones of a wait are not.
    is_reported: bool,
}

type Told = Arc<Mutex<Deadlock>>;

/// One wait, until it is dropped.
pub(crate) struct NestedCall {
    waits: Arc<Waits>,
    number: u64,
    told: Told,
}

impl Waits {
    pub(crate) fn new(lines: Arc<Lines>, mark: ProviderMark) -> Self {
        let outer = std::env::var(OUTER_HOLDS).unwrap_or_default();
        Self {
            lines,
            mark,
            outer: outer.lines().filter(|id| !id.is_empty()).map(Arc::from).collect(),
            state: Mutex::default(),
        }
    }

    /// The holds of other processes inside which this process runs.
    pub(crate) fn outer(&self) -> &[Arc<str>] {
        &self.outer
    }

    /// The value of [`OUTER_HOLDS`] for a program that runs inside these holds.
    pub(crate) fn for_programs(&self, holds: &[Arc<Lease>]) -> String {
        let mut all = Vec::new();
        add(&mut all, live(holds).chain(self.outer.iter().cloned()));
        all.join("\n")
    }

    /// Begins a wait for a name, which has so many holders when it is full. If it closes a circle of waits in this provider,
    /// all of them are told.
    pub(crate) fn begin(
        self: &Arc<Self>,
        name: &Arc<str>,
        since: Instant,
        width: usize,
        holds: Vec<Arc<Lease>>,
    ) -> NestedCall {
        let told = Told::default();
        let wait = Wait {
            name: Arc::clone(name),
            since,
            width,
            holds,
            shown: None,
            told: Arc::clone(&told),
        };
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        for held in wait.held_names() {
            state.holding.entry(held).or_default().insert(number);
        }
        state.waits.insert(number, wait);
        let circles = state.circles(number, &self.mark);
        drop(state);
        report(circles);
        NestedCall {
            waits: Arc::clone(self),
            number,
            told,
        }
    }

    /// Writes what the callers hold that wait for this name, if it has changed.
    fn write(self: &Arc<Self>, state: &WaitsState, name: &Arc<str>) {
        let (mut holds, mut since_perhaps) = (Holds::default(), None);
        for wait in state.waits.values().filter(|wait| wait.name == *name) {
            let Some(perhaps) = &wait.shown else { continue };
            let mut known = live(&wait.holds).chain(self.outer.iter().cloned()).peekable();
            let since = match known.peek() {
                Some(_) => &mut holds.since,
                None => &mut since_perhaps,
            };
            *since = since.iter().copied().chain([wait.since]).min();
            add(&mut holds.known, known);
            add(&mut holds.perhaps, live(perhaps));
        }
        let known = &holds.known;
        holds.perhaps.retain(|hold| !known.contains(hold));
        holds.since = holds
            .since
            .or(since_perhaps.filter(|_| !holds.perhaps.is_empty()));
        self.lines.set_holds(name, &holds);
    }
}

/// Adds what is new, as far as there is room.
fn add(all: &mut Vec<Arc<str>>, more: impl Iterator<Item = Arc<str>>) {
    for hold in more {
        if all.len() < MOST_HOLDS && !all.contains(&hold) {
            all.push(hold);
        }
    }
}

/// The `lockId`s of those leases that are not over, each once. That of a set is the same for all its names, unless it was
/// acquired one by one.
fn live(leases: &[Arc<Lease>]) -> impl Iterator<Item = Arc<str>> {
    let live = leases.iter().filter(|lease| !lease.is_over());
    let keys = live.flat_map(|lease| lease.keys());
    keys.map(|key| Arc::clone(&key.lock_id))
}

impl Wait {
    /// The names of what the caller holds, as others wait for them.
    fn held_names(&self) -> BTreeSet<Arc<str>> {
        let keys = self.holds.iter().flat_map(|lease| lease.keys());
        keys.map(|key| Arc::from(permit_id::awaited(&key.name))).collect()
    }
}

impl WaitsState {
    /// The circles of the waits in this provider that one of them has closed, each as one member sees it.
    fn circles(&self, closing: u64, mark: &ProviderMark) -> Vec<(Told, Circle)> {
        let world = self.world(closing, mark);
        let circle = |number: &u64| {
            let wait = self.waits.get(number)?;
            let own: Vec<Arc<str>> = live(&wait.holds).collect();
            Some((Arc::clone(&wait.told), world.circle(&wait.name, &own)?))
        };
        if circle(&closing).is_none() {
            return Vec::new();
        }
        let held = world.holders.keys().filter_map(|name| self.holding.get(name));
        let members: BTreeSet<u64> = held.flatten().copied().collect();
        members.iter().filter_map(circle).collect()
    }

    /// What this provider knows by itself: a lock that one of its leases has is held by that. A semaphore counts only if all
    /// its permits are held here.
    fn world(&self, from: u64, mark: &ProviderMark) -> World {
        let mut world = World::default();
        let Some(first) = self.waits.get(&from) else {
            return world;
        };
        let (mut next, mut seen) = (vec![first], BTreeSet::new());
        for _ in 0..DEADLOCK_HOPS {
            for awaiting in std::mem::take(&mut next) {
                let name = &awaiting.name;
                if world.holders.contains_key(name) {
                    continue;
                }
                let holding = self.holding.get(name).into_iter().flatten();
                let holding: Vec<(&u64, &Wait)> = holding
                    .filter_map(|number| Some((number, self.waits.get(number)?)))
                    .collect();
                let keys = holding.iter().flat_map(|(_, wait)| &wait.holds);
                let keys = keys
                    .filter(|lease| !lease.is_over())
                    .flat_map(|lease| lease.keys());
                let own =
                    keys.filter(|key| *permit_id::awaited(&key.name) == **name && mark.is_in(&key.lock_id));
                let holders: BTreeSet<Arc<str>> = own.map(|key| Arc::clone(&key.lock_id)).collect();
                let is_full = holders.len() >= awaiting.width;
                let holders = if is_full { holders } else { BTreeSet::new() };
                world.holders.insert(Arc::clone(name), holders);
                for (number, wait) in holding {
                    if seen.insert(*number) {
                        next.push(wait);
                        world.waits.push(NestedWait {
                            provider: Arc::from(number.to_string()),
                            name: Arc::clone(&wait.name),
                            since: DateTime::from_millis(0),
                            holds: live(&wait.holds).collect(),
                        });
                    }
                }
            }
        }
        world
    }
}

impl NestedCall {
    /// Has the document of the name say what the callers hold that wait there; `perhaps` are the guards of the task.
    pub(crate) fn show(&self, perhaps: Vec<Arc<Lease>>) {
        let state = &mut *lock(&self.waits.state);
        if let Some(wait) = state.waits.get_mut(&self.number) {
            wait.shown = Some(perhaps);
            let name = Arc::clone(&wait.name);
            self.waits.write(state, &name);
        }
    }

    /// Notes the name for which a call for several waits now. Returns whether it has changed; then it is not shown.
    pub(crate) fn moves_to(&self, name: &Arc<str>) -> bool {
        let mut state = lock(&self.waits.state);
        let Some(wait) = state
            .waits
            .get_mut(&self.number)
            .filter(|wait| wait.name != *name)
        else {
            return false;
        };
        let before = std::mem::replace(&mut wait.name, Arc::clone(name));
        wait.shown = None;
        self.waits.write(&state, &before);
        let circles = state.circles(self.number, &self.waits.mark);
        lock(&self.told).names.clear();
        // A subscriber to events may be slow.
        drop(state);
        report(circles);
        true
    }

    /// The `lockId`s of what the caller holds.
    pub(crate) fn holds(&self) -> Vec<Arc<str>> {
        let state = lock(&self.waits.state);
        let wait = state.waits.get(&self.number);
        let own = wait.into_iter().flat_map(|wait| live(&wait.holds));
        own.chain(self.waits.outer.iter().cloned()).collect()
    }

    /// Notes that the call is a member of this circle, and reports it, once.
    pub(crate) fn tell(&self, circle: Circle) {
        report(vec![(Arc::clone(&self.told), circle)]);
    }

    /// Notes what a look has found, which ends another circle that was found before. The look reads documents, and those of a
    /// circle in this provider may not be written.
    pub(crate) fn found(&self, circle: Option<&Circle>) {
        let state = lock(&self.waits.state);
        let is_same = circle.is_some_and(|circle| shown(circle) == self.deadlock());
        if !is_same && state.circles(self.number, &self.waits.mark).is_empty() {
            lock(&self.told).names.clear();
        }
    }

    /// The names of the deadlock in which the wait is; none if there is none.
    pub(crate) fn deadlock(&self) -> Vec<String> {
        lock(&self.told).names.clone()
    }
}

impl Drop for NestedCall {
    fn drop(&mut self) {
        let state = &mut *lock(&self.waits.state);
        let Some(wait) = state.waits.remove(&self.number) else {
            return;
        };
        for held in wait.held_names() {
            if let Some(holding) = state.holding.get_mut(&held) {
                holding.remove(&self.number);
                if holding.is_empty() {
                    state.holding.remove(&held);
                }
            }
        }
        if wait.shown.is_some() {
            self.waits.write(state, &wait.name);
        }
    }
}

/// Notes the circles for their waits, and reports those of waits of which none was reported.
fn report(circles: Vec<(Told, Circle)>) {
    for (told, circle) in circles {
        let names = shown(&circle);
        let mut deadlock = lock(&told);
        deadlock.names.clone_from(&names);
        let is_first = !std::mem::replace(&mut deadlock.is_reported, true);
        drop(deadlock);
        if is_first {
            trace::deadlock(&names);
        }
    }
}

/// The names of a circle as its members give them.
fn shown(circle: &Circle) -> Vec<String> {
    let names = circle.names.iter();
    names.map(|name| permit_id::of_group(name).to_owned()).collect()
}

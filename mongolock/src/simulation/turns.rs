//! Whether the processes that wait for a lock have their turns, as the server sees it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::plan::{Plan, Scenario};
use super::process::Process;
use crate::sync::lock;

/// The longest time for which a lock stays free although a process waits for it: the longest time slots in line, and the way of
/// an event and of a request. A holder that has crashed before it could release the lock is another matter.
const LEFT_FREE: Duration = Duration::from_millis(90);

/// The same time if an event may be lost: a waiter without news looks after a second.
const LEFT_FREE_WITHOUT_EVENT: Duration = Duration::from_millis(1200);

/// The same time for waiters that poll.
const LEFT_FREE_POLLING: Duration = Duration::from_millis(400);

/// The number of turns in which the processes find out which waiters have expired.
const LEARNING: usize = 40;

/// The number of turns of which the mean time is checked for which the lock stays free.
const WINDOW: u32 = 20;

/// The longest mean time for which a lock stays free between two turns while processes wait for it, once they know which
/// waiters have expired.
const MEAN_FREE: Duration = Duration::from_millis(20);

/// How recently a program that stands in no line must have acquired the lock when a process releases it, so that the process
/// yields.
const RECENT: Duration = Duration::from_millis(400);

/// The time after such a release before which an acquisition by the same process counts as hasty.
const HASTE: Duration = Duration::from_millis(20);

/// The number of such releases from which on they are judged.
const JUDGED: usize = 20;

/// The number of turns of others between two turns of a process that waits, for each process in the fleet.
const PASSES: usize = 6;

/// The longest time for which a process that waits gets none of the locks that it wants, while others get them.
const STARVED: Duration = Duration::from_secs(3);

/// The processes that live, and the turns for each name.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<TurnsState>,
    /// The longest time for which an awaited lock may stay free.
    left_free: Duration,
    /// Whether the mean time is checked for which the lock stays free.
    checks_mean: bool,
    /// Whether it is checked that no process starves.
    checks_starving: bool,
}

#[derive(Default)]
struct TurnsState {
    processes: HashMap<usize, Arc<Process>>,
    names: HashMap<Arc<str>, Record>,
    /// The time at which a hold of each process last began, or at which its starving was noted.
    last_holds: HashMap<usize, Instant>,
}

#[derive(Default)]
struct Record {
    /// The time of the last release, if a process waited then.
    free_since: Option<Instant>,
    /// The number of turns of others since the last one of a process, as long as it waits.
    passes: HashMap<usize, usize>,
    /// The number of turns since a process began or ended.
    turns: usize,
    /// The last release by a process, and whether it stood in line then and a program that stands in none had acquired the
    /// lock recently. A process that is alone begins to stand in line only after two failed requests.
    last_release: Option<(usize, Instant, bool)>,
    /// The last acquisition by such a program.
    acquired_by_neighbour: Option<Instant>,
    /// The numbers of acquisitions soon after a release by the same process, and of others, while such programs took part.
    hasty: usize,
    patient: usize,
    /// The times for which the lock stayed free before the last turns, if a process waited.
    free: VecDeque<Duration>,
}

impl Turns {
    pub(super) fn of(plan: &Plan) -> Self {
        let (polls, loses) = (plan.wake_ups == 0, plan.knobs.lost_events > 0);
        Self {
            state: Mutex::default(),
            left_free: match (polls, loses) {
                (true, _) => LEFT_FREE_POLLING,
                (false, true) => LEFT_FREE_WITHOUT_EVENT,
                (false, false) => LEFT_FREE,
            },
            checks_mean: !polls && plan.knobs.expired_waiters > 0 && plan.rest == 0,
            checks_starving: plan.scenario == Scenario::SetTurns,
        }
    }

    pub(super) fn begin(&self, process: &Arc<Process>) {
        let processes = &mut lock(&self.state).processes;
        processes.insert(process.number, Arc::clone(process));
    }

    /// Notes that a process has ended. What it would have done next is not known, so the present turn does not count.
    pub(super) fn crashed(&self, process: &Process) {
        let state = &mut *lock(&self.state);
        state.processes.remove(&process.number);
        for record in state.names.values_mut() {
            record.free_since = None;
            record.turns = 0;
            record.passes.remove(&process.number);
        }
    }

    /// Notes that a program which stands in no line has acquired a lock.
    pub(super) fn acquired_by_neighbour(&self, name: &Arc<str>) {
        let state = &mut *lock(&self.state);
        let record = state.names.entry(Arc::clone(name)).or_default();
        record.acquired_by_neighbour = Some(Instant::now());
        record.free_since = None;
        if record
            .last_release
            .take()
            .is_some_and(|(.., is_judged)| is_judged)
        {
            record.patient += 1;
        }
    }

    /// Notes that a caller of a process holds the locks of these names from now on, and returns what that breaks: another
    /// process has waited for one of them for too long.
    pub(super) fn hold_begins(&self, by: usize, names: &[&Arc<str>]) -> Vec<String> {
        if !self.checks_starving {
            return Vec::new();
        }
        let TurnsState {
            processes,
            last_holds,
            ..
        } = &mut *lock(&self.state);
        let now = Instant::now();
        last_holds.insert(by, now);
        let mut breaches = Vec::new();
        for (number, process) in processes.iter().filter(|(number, _)| **number != by) {
            let waits = |name: &&Arc<str>| process.contacts.contact(name).waits_since;
            let Some(waits_since) = names.iter().filter_map(waits).min() else {
                continue;
            };
            let since = last_holds
                .get(number)
                .map_or(waits_since, |last| waits_since.max(*last));
            if since + STARVED <= now {
                breaches.push(format!(
                    "{number} waits for {names:?} and gets nothing for {STARVED:?}, while {by} does"
                ));
                last_holds.insert(*number, now);
            }
        }
        breaches
    }

    /// What the turns of the whole simulation break.
    pub(super) fn breaches(&self) -> Vec<String> {
        let state = lock(&self.state);
        let is_hasty = |record: &&Record| {
            let all = record.hasty + record.patient;
            all >= JUDGED && record.hasty * 3 > all * 2
        };
        let hasty = state.names.values().filter(is_hasty);
        let breach = |record: &Record| {
            let Record { hasty, patient, .. } = record;
            format!(
                "a process that had released a lock acquired it again at once {hasty} times, and {patient} times not"
            )
        };
        hasty.map(breach).collect()
    }

    /// Notes a release.
    pub(super) fn released(&self, name: &Arc<str>, by: Option<usize>, is_in_line: bool) {
        let state = &mut *lock(&self.state);
        let is_awaited = state.processes.values().any(|process| waits(process, name));
        let record = state.names.entry(Arc::clone(name)).or_default();
        record.free_since = is_awaited.then(Instant::now);
        let now = Instant::now();
        let has_rival = record
            .acquired_by_neighbour
            .is_some_and(|at| at.elapsed() < RECENT);
        record.last_release = by.map(|by| (by, now, has_rival && is_in_line));
    }

    /// Notes an acquisition by a process, and returns what it breaks.
    pub(super) fn acquired(&self, name: &Arc<str>, by: usize) -> Vec<String> {
        let state = &mut *lock(&self.state);
        let record = state.names.entry(Arc::clone(name)).or_default();
        let mut breaches = Vec::new();
        // The waiters at the release may have given up.
        let has_waited = |since: &Instant| {
            let mut processes = state.processes.values();
            processes.any(|process| has_waited(process, name, *since))
        };
        let free = record.free_since.take().filter(has_waited);
        let free = free.map(|since| since.elapsed());
        if let Some((last, at, true)) = record.last_release.take() {
            if last == by && at.elapsed() < HASTE {
                record.hasty += 1;
            } else {
                record.patient += 1;
            }
        }
        record.turns += 1;
        if let Some(free) = free {
            record.free.push_back(free);
            if record.free.len() > WINDOW as usize {
                record.free.pop_front();
            }
        }
        if self.checks_mean && record.turns > LEARNING && record.free.len() == WINDOW as usize {
            let mean = record.free.iter().sum::<Duration>() / WINDOW;
            if mean > MEAN_FREE {
                breaches.push(format!(
                    "{name} was free for {mean:?} on average before the last turns"
                ));
            }
        }
        if let Some(free) = free.filter(|free| *free > self.left_free) {
            breaches.push(format!(
                "{name} was free for {free:?} although processes waited for it"
            ));
        }
        // A process begins to count with its first turn: one that comes new waits for a look of those that are there.
        record.passes.insert(by, 0);
        let most = PASSES * state.processes.len();
        for (number, passes) in record.passes.iter_mut().filter(|(number, _)| **number != by) {
            let waiting = state
                .processes
                .get(number)
                .is_some_and(|process| waits(process, name));
            *passes = if waiting { *passes + 1 } else { 0 };
            if waiting && *passes == most {
                breaches.push(format!(
                    "{number} waits for {name} while others have had {most} turns"
                ));
            }
        }
        breaches
    }
}

/// Whether more callers of the process want the lock than have it.
fn waits(process: &Process, name: &str) -> bool {
    process.contacts.contact(name).waits_since.is_some()
}

/// Whether more callers of the process have wanted the lock than had it since this time.
fn has_waited(process: &Process, name: &str, since: Instant) -> bool {
    let waits_since = process.contacts.contact(name).waits_since;
    waits_since.is_some_and(|began| began <= since)
}

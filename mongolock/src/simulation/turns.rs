//! Whether the processes that wait for a lock have their turns, as the server sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::process::Process;
use crate::sync::lock;

/// The longest time for which a lock stays free although a process waits for it: the longest moments in line, and the way of
/// an event and of a request. A holder that has crashed before it could release the lock is another matter.
const LEFT_FREE: Duration = Duration::from_millis(80);

/// The number of turns of others between two turns of a process that waits, for each process in the fleet.
const PASSES: usize = 6;

/// The processes that live, and the turns for each name.
#[derive(Default)]
pub(super) struct Turns(Mutex<State>);

#[derive(Default)]
struct State {
    processes: HashMap<usize, Arc<Process>>,
    names: HashMap<Arc<str>, Record>,
}

#[derive(Default)]
struct Record {
    /// The time of the last release, if a process waited then.
    free_since: Option<Instant>,
    /// The number of turns of others since the last one of a process, as long as it waits.
    passes: HashMap<usize, usize>,
}

impl Turns {
    pub(super) fn begin(&self, process: &Arc<Process>) {
        let processes = &mut lock(&self.0).processes;
        processes.insert(process.number, Arc::clone(process));
    }

    /// Notes that a process has ended. What it would have done next is not known, so the present turn does not count.
    pub(super) fn end(&self, process: &Process) {
        let state = &mut *lock(&self.0);
        state.processes.remove(&process.number);
        for record in state.names.values_mut() {
            record.free_since = None;
            record.passes.remove(&process.number);
        }
    }

    /// Notes a release.
    pub(super) fn released(&self, name: &Arc<str>) {
        let state = &mut *lock(&self.0);
        let is_awaited = state.processes.values().any(|process| waits(process, name));
        let record = state.names.entry(Arc::clone(name)).or_default();
        record.free_since = is_awaited.then(Instant::now);
    }

    /// Notes an acquisition by a process, and returns what it breaks.
    pub(super) fn acquired(&self, name: &Arc<str>, by: usize) -> Vec<String> {
        let state = &mut *lock(&self.0);
        let record = state.names.entry(Arc::clone(name)).or_default();
        let mut breaches = Vec::new();
        let free = record.free_since.take().map(|since| since.elapsed());
        if let Some(free) = free.filter(|free| *free > LEFT_FREE) {
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
    let contact = process.contacts.contact(name);
    contact.callers > contact.holding
}

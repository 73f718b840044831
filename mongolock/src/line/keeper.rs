use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;

use super::line::{PlaceRequest, Write};
use super::{Lines, LinesState};
use crate::store::{Waiter, WaiterEntry, WaitersByName, driver_error};
use crate::sync::lock;
use crate::timing::{
    LINE_CHECK, LINE_CHECK_LEAST, LINE_LIMIT, LINE_MARGIN, LINE_PROLONGED, LINE_READ, LINE_READ_LIMIT,
    LINE_REFUSED, LINE_SHUTDOWN, LINE_SLOT_POLLING,
};
use crate::{LockError, trace};

/// The number of documents that are written with one command.
const BATCH: usize = 500;

/// The number of names whose lines are read with one query.
const READ: usize = 100;

impl Lines {
    /// Starts the write of a name's document, which is not as it should be.
    pub(super) fn settle(self: &Arc<Self>, state: &mut LinesState, name: &Arc<str>) {
        state.unsettled.insert(Arc::clone(name));
        if state.writer.as_ref().is_none_or(JoinHandle::is_finished) {
            let writing = write(Arc::clone(self));
            state.writer = Some(crate::task::spawn(writing.in_current_span()));
        }
    }

    /// Starts the task that keeps the documents, unless it runs: it ends with the runtime that it was started on.
    pub(super) fn ensure_keeper(self: &Arc<Self>, state: &mut LinesState) {
        if state.keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            state.keeper = Some(crate::task::spawn(keep(Arc::clone(self))));
        }
    }

    /// The documents that are to be written now; `None` if all are as they should be.
    fn next_writes(&self) -> Option<Writes> {
        let state = &mut *lock(&self.state);
        let mut writes = Writes::default();
        while writes.places.len() + writes.leaves.len() < BATCH
            && let Some(name) = state.unsettled.pop_first()
        {
            let Some(line) = state.names.get_mut(&name) else {
                continue;
            };
            match line.take_write() {
                Some(Write::Place(place)) => {
                    writes.places.push(WaiterEntry {
                        name,
                        provider: self.mark.clone(),
                        owner: Arc::clone(&self.owner),
                        waited: place.waiting.map(|since| since.elapsed()),
                        time_slot: time_slot(line.has_stream(), state.round_trip),
                        last: place.last,
                        keeps_place: place.is_kept,
                    });
                    writes.placed.push(place);
                }
                Some(Write::Leave) => writes.leaves.push(name),
                None => {}
            }
        }
        if writes.places.is_empty() && writes.leaves.is_empty() {
            state.writer = None;
            return None;
        }
        Some(writes)
    }

    /// Forgets the names whose lines were left, unless they are used again: then this provider enters the line once more.
    fn forget_left(&self, names: &[Arc<str>]) {
        let state = &mut *lock(&self.state);
        for name in names {
            let Some(line) = state.names.get_mut(name) else {
                continue;
            };
            if line.has_user() && !line.wants_write() {
                line.want_move(None);
            }
            if line.wants_write() {
                state.unsettled.insert(Arc::clone(name));
            } else {
                state.names.remove(name);
            }
        }
        self.known.store(state.names.len(), Relaxed);
    }

    /// Notes that documents were not written, as far as is known. The keeper has them be written again, unless something
    /// else is to be written by then.
    fn put_back(&self, writes: impl IntoIterator<Item = (Arc<str>, Write)>) {
        let state = &mut *lock(&self.state);
        for (name, write) in writes {
            if let Some(line) = state.names.get_mut(&name) {
                line.put_back(write);
            }
        }
    }

    /// Reads the lines of names, and returns those that have a waiter.
    pub(crate) async fn read(&self, names: &[Arc<str>]) -> WaitersByName {
        let mut all = WaitersByName::new();
        for names in names.chunks(READ) {
            match self.store.lines(names, LINE_READ_LIMIT).await {
                Ok(lines) => {
                    self.take_over(names, &lines);
                    all.extend(lines);
                }
                // What is known of these lines stays known: no reply does not mean that the line is empty.
                Err(error) => self.failed(&error),
            }
        }
        all
    }

    fn take_over(&self, names: &[Arc<str>], lines: &WaitersByName) {
        let mut state = lock(&self.state);
        for name in names {
            if let Some(line) = state.names.get_mut(name) {
                let waiters = lines.get(name).map_or(&[][..], Vec::as_slice);
                line.read(waiters, self.mark.as_str());
            }
        }
    }

    /// Reads the lines of the names that were acquired again soon after their release, and returns those for which others
    /// wait.
    pub(crate) async fn read_reacquired(&self) -> Vec<Arc<str>> {
        let mut names = std::mem::take(&mut lock(&self.state).reacquired);
        let lines = self.read(&names).await;
        let is_other = |waiter: &Waiter| &*waiter.provider != self.mark.as_str();
        // In the order of the releases: that of a hash map differs from run to run, also in the simulation.
        names.retain(|name| lines.get(name).is_some_and(|line| line.iter().any(is_other)));
        names
    }

    /// Notes a failed command. A provider without the right to the documents goes on as one that waits for no order.
    fn failed(&self, error: &LockError) {
        if driver_error::is_transient(error) {
            trace::line_failed(error);
            return;
        }
        let warns = {
            let mut state = lock(&self.state);
            state.refused_until = Some(Instant::now() + LINE_REFUSED);
            state.names.clear();
            self.known.store(0, Relaxed);
            !std::mem::replace(&mut state.has_warned, true)
        };
        // A subscriber to events may be slow.
        if warns {
            trace::line_refused(error);
        } else {
            trace::line_failed(error);
        }
    }

    /// Starts the writes of documents that are due, and returns when to come again; `None` at the end. `of_all` says whether
    /// each line is checked, and not only those that may be without a user.
    fn check(self: &Arc<Self>, of_all: bool) -> Option<Instant> {
        let state = &mut *lock(&self.state);
        if state.names.is_empty() || state.is_stopped {
            state.keeper = None;
            return None;
        }
        let now = Instant::now();
        let mut next = now + LINE_CHECK;
        let mut idle = Vec::new();
        for (name, line) in &mut state.names {
            let is_due = line.check_at().is_some_and(|at| at <= now);
            if is_due || of_all {
                line.leave_if_idle(now);
            }
            next = line.check_at().map_or(next, |at| next.min(at));
            if line.wants_write() {
                idle.push(Arc::clone(name));
            }
        }
        for name in idle {
            self.settle(state, &name);
        }
        Some(next)
    }

    /// Whether the lines are to be read again, because acquisitions may have been missed.
    fn takes_reread(&self) -> bool {
        std::mem::take(&mut lock(&self.state).rereads)
    }

    /// Asks the keeper to read the lines again, because acquisitions may have been missed.
    pub(crate) fn reread(&self) {
        if !self.is_empty() {
            lock(&self.state).rereads = true;
            self.keep.notify_one();
        }
    }

    async fn prolong(&self) {
        for names in self.names().chunks(BATCH) {
            let prolonging = self.store.prolong_waits(&self.mark, names, LINE_LIMIT);
            if let Err(error) = prolonging.await {
                self.failed(&error);
            }
        }
    }

    /// Leaves all lines at a shutdown. Documents that cannot be removed in time are ignored by others soon.
    pub(crate) async fn leave_all(self: &Arc<Self>) {
        let (names, writer): (Vec<Arc<str>>, _) = {
            let mut state = lock(&self.state);
            state.is_stopped = true;
            self.keep.notify_one();
            let names = std::mem::take(&mut state.names).into_keys().collect();
            (names, state.writer.take())
        };
        self.known.store(0, Relaxed);
        let leaving = async {
            // A write that is under way must not follow the removal. No other one begins, because there are no names.
            if let Some(writer) = writer {
                let _ = writer.await;
            }
            for names in names.chunks(BATCH) {
                if let Err(error) = self.store.leave_lines(&self.mark, names, LINE_LIMIT).await {
                    trace::line_failed(&error);
                }
            }
        };
        let _ = timeout(LINE_SHUTDOWN, leaving).await;
    }
}

/// The time that a provider needs from a release to its request, if its requests take this time: it hears of the release
/// about as late as it gets a reply.
fn time_slot(has_stream: bool, round_trip: Duration) -> Duration {
    let hearing = if has_stream {
        LINE_MARGIN
    } else {
        LINE_SLOT_POLLING
    };
    hearing + round_trip * 2
}

/// The documents that are written with one round of commands.
#[derive(Default)]
struct Writes {
    places: Vec<WaiterEntry>,
    /// What the entries of `places` were made of, in the same order.
    placed: Vec<PlaceRequest>,
    leaves: Vec<Arc<str>>,
}

/// Writes the documents that are not as they should be. One round follows the other, so that no write of a document
/// overtakes an earlier one.
async fn write(lines: Arc<Lines>) {
    while let Some(writes) = lines.next_writes() {
        if !writes.leaves.is_empty() {
            let leaving = lines.store.leave_lines(&lines.mark, &writes.leaves, LINE_LIMIT);
            match leaving.await {
                Ok(()) => lines.forget_left(&writes.leaves),
                Err(error) => {
                    lines.failed(&error);
                    lines.put_back(writes.leaves.into_iter().map(|name| (name, Write::Leave)));
                }
            }
        }
        if writes.places.is_empty() {
            continue;
        }
        let moved = lines.store.move_to_end(&writes.places, LINE_LIMIT).await;
        let names = writes.places.into_iter().map(|entry| entry.name);
        match moved {
            Ok(()) => {
                let names: Vec<Arc<str>> = names.collect();
                lines.read(&names).await;
            }
            Err(error) => {
                lines.failed(&error);
                lines.put_back(names.zip(writes.placed.into_iter().map(Write::Place)));
            }
        }
    }
}

/// Keeps the documents: it prolongs them, and removes those of names without a user. It also reads the lines from time to
/// time: the documents of others may have been removed or lost.
async fn keep(lines: Arc<Lines>) {
    let (mut prolonged, mut read, mut checked) = (Instant::now(), Instant::now(), Instant::now());
    let mut of_all = false;
    while let Some(next) = lines.check(of_all) {
        if prolonged.elapsed() >= LINE_PROLONGED {
            prolonged = Instant::now();
            lines.prolong().await;
        }
        if lines.takes_reread() || read.elapsed() >= LINE_READ {
            read = Instant::now();
            lines.read(&lines.names()).await;
        }
        // A check goes over all names: one serves the releases of this time.
        sleep(LINE_CHECK_LEAST).await;
        // The time is over, or there is something to do before.
        let _ = timeout_at(next, lines.keep.notified()).await;
        of_all = checked.elapsed() >= LINE_CHECK;
        if of_all {
            checked = Instant::now();
        }
    }
}

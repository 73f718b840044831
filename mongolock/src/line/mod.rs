//! The order between processes: the waiters for a lock stand in a line.
//!
//! Each provider that waits for a name has a document in the line of that name. The documents are hints: they decide when
//! a provider sends an acquire request, and the lock document alone decides who has the lock. So everything here may be
//! late, lost or wrong, and costs order or some time then.
//!
//! | file | what it has |
//! |---|---|
//! | `order.rs` | what this provider knows of the line of one name |
//! | `line.rs` | the line of one name: its order, and this provider's own document |
//! | `keeper.rs` | the tasks that write the documents and keep them for as long as they are needed |
//! | `indexes.rs` | the background check of the indexes of the documents |
//! | `recent.rs` | the names that this provider has released recently |

mod indexes;
mod keeper;
#[expect(
    clippy::module_inception,
    reason = "the folder has the lines of all names, this file has one"
)]
mod line;
mod order;
mod recent;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::permit_id;
use crate::queue::Rivals;
use crate::store::{ProviderMark, Store};
use crate::sync::lock;
use crate::timing::{LINE_REACQUIRED, LINE_REACQUIRED_EVERY, LINE_SLOTS_MAX};
use indexes::Indexes;
use line::Line;
use recent::RecentReleases;

/// The greatest number of names that are remembered until their lines are read; those that are left out come again.
const REACQUIRED_MOST: usize = 100;

/// What uses a name in this process: its queue, which exists as long as a caller waits or holds.
pub(crate) type User = Weak<dyn Send + Sync>;

/// An acquisition by this provider.
pub(crate) struct OwnAcquisition {
    /// The time that the request took.
    pub(crate) request: Duration,
    /// The time at which the oldest of the other callers in this process began to wait.
    pub(crate) waiting_since: Option<Instant>,
    pub(crate) user: User,
    /// Whether the change stream reports this lock.
    pub(crate) has_stream: bool,
}

/// What a waiter knows of its place in a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The number of waiters before this provider.
    pub(crate) ahead: usize,
    /// How long this provider waits after a release, so that those before it in line can acquire the lock.
    pub(crate) time_slots: Duration,
    /// The pause of a waiter that polls, by its place and by the time for which the present holder has the lock: a lock that is
    /// held for long is seldom free soon.
    pub(crate) polling_pause: Duration,
    /// Until when the next caller leaves a lock that may be free to others; `None` if it does not.
    pub(crate) yields_until: Option<Instant>,
}

/// What is known of a claim that has a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sighting {
    /// Whether the claim is one of this provider.
    pub(crate) is_own: bool,
    /// Whether this provider stands in the line of the name.
    pub(crate) is_in_line: bool,
}

/// The lines that a provider stands in.
pub(crate) struct Lines {
    store: Arc<Store>,
    /// What tells this provider from all others.
    mark: ProviderMark,
    owner: Arc<str>,
    state: Mutex<LinesState>,
    /// The number of names in the state: as long as there is none, a lock that is free costs no mutex here.
    known: AtomicUsize,
    recent: RecentReleases,
    /// Wakes the keeper when it has to come earlier.
    keep: Notify,
}

#[derive(Default)]
struct LinesState {
    /// In a fixed order, so that a seed of the simulation repeats the same run.
    names: BTreeMap<Arc<str>, Line>,
    /// The time that an acquire request takes of late.
    round_trip: Duration,
    /// The server refuses the documents of this provider until then.
    refused_until: Option<Instant>,
    /// The names that were acquired again soon after their release, and whose lines are not read yet.
    reacquired: Vec<Arc<str>>,
    /// The last time at which the lines of such names were read, and the least pause until the next time.
    reacquired_read: Option<(Instant, Duration)>,
    keeper: Option<JoinHandle<()>>,
    /// The names whose documents are not as they should be.
    unsettled: BTreeSet<Arc<str>>,
    /// The task that writes them.
    writer: Option<JoinHandle<()>>,
    /// Whether a warning has said that the server refuses the documents.
    has_warned: bool,
    indexes: Indexes,
    /// Whether the keeper has to read the lines.
    rereads: bool,
    /// Whether the provider is shut down.
    is_stopped: bool,
}

impl Lines {
    pub(crate) fn new(store: Arc<Store>, mark: ProviderMark, owner: Arc<str>) -> Self {
        Self {
            store,
            mark,
            owner,
            state: Mutex::default(),
            known: AtomicUsize::new(0),
            recent: RecentReleases::new(Instant::now()),
            keep: Notify::new(),
        }
    }

    /// What this returns of the line of a name; `None` if the provider does not stand in it.
    fn with_line<T>(&self, name: &str, of: impl FnOnce(&mut Line) -> T) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        lock(&self.state).names.get_mut(name).map(of)
    }

    /// The names in whose lines this provider stands.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        lock(&self.state).names.keys().cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.load(Relaxed) == 0
    }

    /// Enters the line of a name with this provider, for a caller that began to wait then, if there is one. It does nothing
    /// if it stands there, or the server refuses its documents. `width` says how many waiters ask at once:
    /// one for a lock, and as many as there are permits for a semaphore.
    pub(crate) fn enter(
        self: &Arc<Self>,
        name: &Arc<str>,
        user: User,
        width: usize,
        has_stream: bool,
        begun: Option<Instant>,
    ) {
        let state = &mut *lock(&self.state);
        if let Some(line) = state.names.get_mut(name) {
            line.set_user(user);
            line.set_width(width);
            self.ensure_keeper(state);
            return;
        }
        if state.is_stopped || state.is_refused(Instant::now()) {
            return;
        }
        let mut line = Line::new(user, has_stream);
        line.set_width(width);
        line.want_move(begun);
        state.names.insert(Arc::clone(name), line);
        self.known.store(state.names.len(), Relaxed);
        self.settle(state, name);
        self.ensure_keeper(state);
        self.ensure_indexes(state);
    }

    /// Notes that this provider has acquired a lock: it goes to the end of the line, if it stands there. Returns whether
    /// [`Self::read_reacquired`] is due. `acquired` is only called if this provider stands in a line.
    pub(crate) fn acquired(
        self: &Arc<Self>,
        name: &Arc<str>,
        acquired: impl FnOnce() -> OwnAcquisition,
    ) -> bool {
        if self.is_empty() {
            return self.note_reacquired(name);
        }
        // The closure locks the notifier and the queue, so it runs before this mutex is locked.
        let acquired = acquired();
        let mut state = lock(&self.state);
        state.note_round_trip(acquired.request);
        let Some(line) = state.names.get_mut(name) else {
            drop(state);
            return self.note_reacquired(name);
        };
        line.acquired(acquired);
        self.settle(&mut state, name);
        false
    }

    /// Notes a name that is acquired again soon after its release. Its caller never waits, so that it would never hear of
    /// the waiters.
    fn note_reacquired(&self, name: &Arc<str>) -> bool {
        let now = Instant::now();
        if !self.recent.contains(now, name) {
            return false;
        }
        let mut state = lock(&self.state);
        if state.is_refused(now) || state.is_stopped {
            return false;
        }
        if state.reacquired.len() < REACQUIRED_MOST && !state.reacquired.contains(name) {
            state.reacquired.push(Arc::clone(name));
        }
        // One task reads for all calls that come before it runs.
        state.begins_to_read_reacquired(now)
    }

    /// Notes that this provider has released a lock. If others wait for it, the next caller in this process leaves it to
    /// them for a time slot.
    pub(crate) fn released(&self, name: &str) {
        let name = permit_id::awaited(name);
        let now = Instant::now();
        self.recent.add(now, name);
        if self.with_line(name, |line| line.released(now)).is_some() {
            self.keep.notify_one();
        }
    }

    /// Notes that a caller has stopped to wait.
    pub(crate) fn waiter_left(&self, name: &str) {
        if self
            .with_line(name, |line| line.may_be_idle(Instant::now()))
            .is_some()
        {
            self.keep.notify_one();
        }
    }

    /// The place of a waiter; `None` if this provider does not stand in the line of this name.
    pub(crate) fn standing(&self, name: &str) -> Option<Standing> {
        self.with_line(name, |line| line.standing(Instant::now()))
    }

    /// Notes that a caller still waits, since this time, and whether a stream is expected to wake it. Returns its place; `None`
    /// if this provider does not stand in the line of this name.
    pub(crate) fn waits(
        self: &Arc<Self>,
        name: &Arc<str>,
        since: Instant,
        expects_stream: bool,
    ) -> Option<Standing> {
        if self.is_empty() {
            return None;
        }
        let (state, now) = (&mut *lock(&self.state), Instant::now());
        let line = state.names.get_mut(name)?;
        let is_polling_new = !expects_stream && line.note_polling();
        let is_written = line.note_wait(now, since) || is_polling_new;
        let standing = line.standing(now);
        if is_written {
            self.settle(state, name);
        }
        Some(standing)
    }

    /// Notes the holder that an event, a reply or a look has named. Another one than before shows an acquisition.
    ///
    /// Of the permits of a semaphore only the events of their acquisitions are noted: several claims hold them at a time, and
    /// a reply or a look that names one of these does not say that it has acquired its permit since the last one.
    pub(crate) fn held_by(&self, name: &str, lock_id: &Arc<str>) -> Sighting {
        let is_own = self.mark.is_in(lock_id);
        let noted = self.with_line(name, |line| {
            if !is_own {
                line.held_by(Instant::now(), lock_id);
            }
        });
        Sighting {
            is_own,
            is_in_line: noted.is_some(),
        }
    }

    /// Notes a reply that found the lock held, by this claim if it names one, and the time that the request took. A provider
    /// that is far away asks the others for a longer time slot from the beginning then, and not only after its first acquisition:
    /// it might never have one. The request for a set is a longer one, and the set needs as much time for its next one.
    pub(crate) fn found_held(&self, name: &str, lock_id: Option<&Arc<str>>, request: Duration) {
        lock(&self.state).note_round_trip(request);
        if let Some(lock_id) = lock_id {
            self.held_by(name, lock_id);
        }
    }

    /// What this provider knows of others that want the lock.
    pub(crate) fn rivals(&self, name: &str) -> Rivals {
        self.with_line(name, |line| line.rivals(Instant::now()))
            .unwrap_or(Rivals::Unknown)
    }
}

impl LinesState {
    fn is_refused(&self, now: Instant) -> bool {
        self.refused_until.is_some_and(|until| until > now)
    }

    /// Whether the lines of the names that were acquired again are to be read now. The pauses grow from the first such name
    /// on: others that begin to wait then are found soon, and a process that is alone sends few queries.
    fn begins_to_read_reacquired(&mut self, now: Instant) -> bool {
        let pause = match self.reacquired_read {
            Some((last, pause)) if now < last + pause => return false,
            Some((last, pause)) if now < last + LINE_REACQUIRED_EVERY * 2 => {
                (pause * 2).min(LINE_REACQUIRED_EVERY)
            }
            _ => LINE_REACQUIRED,
        };
        self.reacquired_read = Some((now, pause));
        true
    }

    /// Keeps a moving mean of the time that requests take. One counts as [`LINE_SLOTS_MAX`] at most, which is what the others
    /// leave to all.
    fn note_round_trip(&mut self, request: Duration) {
        let (before, request) = (self.round_trip, request.min(LINE_SLOTS_MAX));
        self.round_trip = if before.is_zero() {
            request
        } else {
            (before * 7 + request) / 8
        };
    }
}

//! The notes about the holds of a provider: what each says, when it is written, and who has ended a hold by force.
//!
//! They are hints. Nothing waits for them, except a caller whose claim is gone, for [`FORCED_LIMIT`] at most.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Lease;
use crate::options::Options;
use crate::store::{EndedHold, Force, Note, Store, driver_error};
use crate::sync::lock;
use crate::timing::{
    FORCED_LIMIT, NOTE_KEPT, NOTE_LIMIT, NOTE_READ, NOTE_REFUSED, NOTE_REPEAT, NOTE_SHUTDOWN,
};
use crate::{LockError, LossReason, task, trace};

/// The largest number of notes in one command.
const BATCH: usize = 500;

/// What the holder of a lease has noted.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaseNote {
    text: Option<Arc<str>>,
    /// What was written last for the claims of the lease, also by an earlier holder in this process, and when.
    written: Option<(Option<Arc<str>>, Instant)>,
}

impl LeaseNote {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            text: options.note.clone(),
            written: None,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        match (&self.text, &self.written) {
            (text, None) => text.is_some(),
            (text, Some((written, _))) if text != written => true,
            (text, Some((_, at))) => text.is_some() && now >= *at + NOTE_REPEAT,
        }
    }
}

impl Lease {
    /// What the caller that takes the hold over notes instead of the one before.
    pub(super) fn set_note(&self, options: &Options) {
        lock(&self.note).text.clone_from(&options.note);
    }

    /// The notes to write at this time, which count as written: one for each id of its claims.
    fn take_due_notes(&self, now: Instant) -> Vec<Note> {
        let mut note = lock(&self.note);
        if !note.is_due(now) || self.is_over() {
            return Vec::new();
        }
        let text = note.text.clone();
        note.written = Some((text.clone(), now));
        self.notes(|| text.clone(), NOTE_KEPT)
    }

    fn notes(&self, text: impl Fn() -> Option<Arc<str>>, kept: Duration) -> Vec<Note> {
        let note = |lock_id: &Arc<str>| Note {
            lock_id: Arc::clone(lock_id),
            text: text(),
            kept,
        };
        self.lock_ids().map(note).collect()
    }

    /// The ids of its claims: one, unless the locks of a set were acquired one by one.
    fn lock_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        let ids = self.keys.iter().map(|key| &key.lock_id);
        let mut last = None;
        ids.filter(move |id| last.replace(*id) != Some(*id))
    }

    /// Resolves when it is known whether the lease was ended by force, after a loss that may have been one.
    pub(crate) async fn until_told(&self) {
        let told = self.until(|lease| !lease.is_asking.load(Ordering::Relaxed));
        // The task that asks ends with its runtime.
        let _ = timeout(FORCED_LIMIT, told).await;
    }

    /// The error of a lease that is over, with what is known of its end.
    pub(super) async fn told_lost_error(&self) -> LockError {
        self.until_told().await;
        self.lost_error()
    }
}

/// The answer to a question about one hold, once it is there; none after an error.
type Answer<T> = Arc<OnceLock<Option<T>>>;

/// Questions about holds that are asked together: while one query is under way, the others wait for the next one.
struct Questions<T> {
    /// Those that the next query asks, by the ids of the claims.
    pending: Mutex<Vec<(Arc<str>, Answer<T>)>>,
    /// Held during a query.
    asking: tokio::sync::Mutex<()>,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self {
            pending: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }
}

impl<T: Clone> Questions<T> {
    fn add(&self, lock_id: Arc<str>) -> Answer<T> {
        let answer = Arc::default();
        lock(&self.pending).push((lock_id, Arc::clone(&answer)));
        answer
    }

    /// Waits for an answer, or sends the query for all that are pending.
    async fn answer(
        &self,
        answer: &Answer<T>,
        query: impl AsyncFnOnce(&[Arc<str>]) -> Result<HashMap<Arc<str>, T>, LockError>,
    ) -> Option<T> {
        let _turn = self.asking.lock().await;
        if answer.get().is_none() {
            let pending = std::mem::take(&mut *lock(&self.pending));
            let ids: Vec<Arc<str>> = pending.iter().map(|(id, _)| Arc::clone(id)).collect();
            let mut found = query(&ids).await.unwrap_or_default();
            for (id, answer) in pending {
                answer.get_or_init(|| found.remove(&id));
            }
        }
        answer.get().cloned().flatten()
    }
}

/// A note that a caller has asked for.
struct NoteRead {
    begun: Instant,
    note: Answer<String>,
}

/// Writes the notes of a provider in the background, those that are due at one time with one command.
pub(crate) struct Notes {
    store: Arc<Store>,
    /// Whether a note is written as soon as its lock is acquired.
    at_once: bool,
    state: Mutex<NotesState>,
    /// The notes that callers have asked for just now, by the ids of the holders.
    recent: Mutex<HashMap<Arc<str>, NoteRead>>,
    reads: Questions<String>,
    /// Who has ended holds by force.
    forces: Questions<Force>,
    /// Notified when no note is being written any more.
    idle: Notify,
}

#[derive(Default)]
struct NotesState {
    /// The notes to write, with the leases that they are about; a detached one has none.
    pending: Vec<(Note, Option<Arc<Lease>>)>,
    is_writing: bool,
    /// Whether the index is known that removes the documents.
    has_index: bool,
    /// No note is written before this time, because the server has refused one.
    refused_until: Option<Instant>,
}

impl NotesState {
    fn is_refused(&self) -> bool {
        self.refused_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Notes {
    pub(super) fn new(store: Arc<Store>, at_once: bool) -> Arc<Self> {
        Arc::new(Self {
            store,
            at_once,
            state: Mutex::default(),
            recent: Mutex::default(),
            reads: Questions::default(),
            forces: Questions::default(),
            idle: Notify::new(),
        })
    }

    /// Writes the note of a lease that was acquired now, where notes do not wait for the first renewal.
    pub(super) fn write_acquired(self: &Arc<Self>, lease: &Arc<Lease>) {
        // A hold that is handed over may be dropped outside a runtime.
        if self.at_once && Handle::try_current().is_ok() {
            self.write_due(std::slice::from_ref(lease));
        }
    }

    /// Writes the notes of these leases that are due.
    pub(super) fn write_due(self: &Arc<Self>, leases: &[Arc<Lease>]) {
        let now = Instant::now();
        let due = |lease: &Arc<Lease>| {
            let notes = lease.take_due_notes(now).into_iter();
            let lease = Arc::clone(lease);
            notes.map(move |note| (note, Some(Arc::clone(&lease))))
        };
        self.add(leases.iter().flat_map(due).collect());
    }

    /// Writes the note of a lease that was detached under its new id, and lasts for this time.
    pub(super) fn write_detached(self: &Arc<Self>, lease: &Lease, lock_id: &Arc<str>, ttl: Duration) {
        if let Some(text) = lock(&lease.note).text.clone() {
            let note = Note {
                lock_id: Arc::clone(lock_id),
                text: Some(text),
                kept: ttl.max(NOTE_KEPT),
            };
            self.add(vec![(note, None)]);
        }
    }

    fn add(self: &Arc<Self>, notes: Vec<(Note, Option<Arc<Lease>>)>) {
        if notes.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        if state.is_refused() {
            notes.into_iter().for_each(not_written);
            return;
        }
        state.pending.extend(notes);
        if std::mem::replace(&mut state.is_writing, true) {
            return;
        }
        drop(state);
        let writing = Writing(Some(Arc::clone(self))).run();
        if self.store.never_waits() {
            task::run_at_once(writing);
        } else {
            task::spawn(writing);
        }
    }

    /// The next notes to write; `None` ends the task.
    fn take(&self) -> Option<Vec<(Note, Option<Arc<Lease>>)>> {
        let mut state = lock(&self.state);
        let most = state.pending.len().min(BATCH);
        let taken: Vec<_> = state.pending.drain(..most).collect();
        state.is_writing = !taken.is_empty();
        state.is_writing.then_some(taken)
    }

    async fn write(&self, taken: Vec<(Note, Option<Arc<Lease>>)>) {
        let notes: Vec<Note> = taken.iter().map(|(note, _)| note.clone()).collect();
        let Err(error) = self.store.write_notes(&notes, NOTE_LIMIT).await else {
            self.ensure_index().await;
            return;
        };
        if !driver_error::is_transient(&error) {
            lock(&self.state).refused_until = Some(Instant::now() + NOTE_REFUSED);
        }
        taken.into_iter().for_each(not_written);
    }

    /// Notes by whom these holds were ended. Without the rights, or after another error, there is no note: it returns `false`.
    pub(crate) async fn write_forced(&self, ended: &[EndedHold], force: &Force) -> bool {
        let is_written = self.store.note_forced(ended, force).await.is_ok();
        if is_written {
            self.ensure_index().await;
        }
        is_written
    }

    /// Has the index built that removes the documents, if it is missing when the first one is written.
    async fn ensure_index(&self) {
        if !std::mem::replace(&mut lock(&self.state).has_index, true) {
            self.store.ensure_waiters_indexes().await;
        }
    }

    /// Waits until the notes are written, for [`NOTE_SHUTDOWN`] at most.
    pub(crate) async fn until_written(&self) {
        let written = async {
            loop {
                let idle = self.idle.notified();
                if !lock(&self.state).is_writing {
                    return;
                }
                idle.await;
            }
        };
        let _ = timeout(NOTE_SHUTDOWN, written).await;
    }

    /// The note about the hold with this id. Callers that end at nearly the same time read that of one holder once, and those of
    /// several holders together.
    pub(crate) async fn read(&self, lock_id: Arc<str>) -> Option<String> {
        if lock(&self.state).is_refused() {
            return None;
        }
        let now = Instant::now();
        let note = {
            let recent = &mut *lock(&self.recent);
            recent.retain(|_, read| now < read.begun + NOTE_READ);
            let read = recent.entry(Arc::clone(&lock_id)).or_insert_with(|| NoteRead {
                begun: now,
                note: self.reads.add(lock_id),
            });
            Arc::clone(&read.note)
        };
        let query = async |ids: &[Arc<str>]| self.store.notes_of(ids, NOTE_READ).await;
        self.reads.answer(&note, query).await
    }

    /// Finds out who has ended a lease by force whose claim is gone, notes that its holder has noticed it, and reports the loss.
    pub(super) async fn report_gone(self: &Arc<Self>, lease: &Lease) {
        if let Some(force) = self.forced(lease).await {
            lease.forced.get_or_init(|| force.to_string());
        }
        lease.is_asking.store(false, Ordering::Relaxed);
        lease.changed.notify_waiters();
        lease.report(|hold| trace::lost(hold, LossReason::Gone, lease.forced.get().map(String::as_str)));
    }

    /// Who has ended a lease by force. It asks twice: the operator's command writes the note after the release. Leases that are
    /// lost at the same time ask together.
    async fn forced(self: &Arc<Self>, lease: &Lease) -> Option<Force> {
        let by = Instant::now() + FORCED_LIMIT;
        if lock(&self.state).is_refused() {
            return None;
        }
        if !self.store.sends_notes() {
            return self.see_forced(Arc::clone(&lease.key().lock_id)).await;
        }
        for pause in [Duration::ZERO, FORCED_LIMIT / 2] {
            sleep(pause).await;
            for lock_id in lease.lock_ids() {
                let (notes, lock_id) = (Arc::clone(self), Arc::clone(lock_id));
                let asking = task::start(async move { Ok(notes.see_forced(lock_id).await) });
                if let Some(force) = timeout_at(by, asking).await.ok()?.ok()? {
                    return Some(force);
                }
            }
        }
        None
    }

    async fn see_forced(&self, lock_id: Arc<str>) -> Option<Force> {
        let answer = self.forces.add(lock_id);
        let query = async |ids: &[Arc<str>]| self.store.see_forced(ids, FORCED_LIMIT).await;
        self.forces.answer(&answer, query).await
    }
}

fn not_written((_, lease): (Note, Option<Arc<Lease>>)) {
    if let Some(lease) = lease {
        lock(&lease.note).written = None;
    }
}

/// The task that writes notes. If its runtime ends before it, the next notes get another one.
struct Writing(Option<Arc<Notes>>);

impl Writing {
    async fn run(mut self) {
        if let Some(notes) = &self.0 {
            while let Some(taken) = notes.take() {
                notes.write(taken).await;
            }
            notes.idle.notify_waiters();
        }
        self.0 = None;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(notes) = &self.0 {
            lock(&notes.state).is_writing = false;
            notes.idle.notify_waiters();
        }
    }
}

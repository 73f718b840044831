//! The notes of the in-memory store, by the rules of the commands in `store/waiters/notes.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::MemoryStore;
use crate::store::{EndedHold, Force, Note};
use crate::sync::lock;
use crate::timing::NOTE_KEPT;

/// The documents of the notes by the ids of the claims, each with its end.
#[derive(Default)]
pub(super) struct NoteDocuments {
    notes: Mutex<HashMap<Arc<str>, (Note, Duration)>>,
    forced: Mutex<HashMap<Arc<str>, (Force, Duration)>>,
}

impl MemoryStore {
    pub(crate) fn write_notes(&self, notes: &[Note]) {
        let now = self.now();
        let mut documents = lock(&self.notes.notes);
        documents.retain(|_, (_, until)| *until > now);
        for note in notes {
            documents.insert(Arc::clone(&note.lock_id), (note.clone(), now + note.kept));
        }
    }

    pub(crate) fn note_of(&self, lock_id: &str) -> Option<String> {
        let documents = lock(&self.notes.notes);
        let (note, _) = documents.get(lock_id)?;
        note.text.as_deref().map(str::to_owned)
    }

    pub(crate) fn note_forced(&self, ended: &[EndedHold], force: &Force) {
        let now = self.now();
        let mut documents = lock(&self.notes.forced);
        documents.retain(|_, (_, until)| *until > now);
        for hold in ended {
            documents.insert(Arc::clone(&hold.lock_id), (force.clone(), now + NOTE_KEPT));
        }
    }

    pub(crate) fn forced(&self, lock_id: &str) -> Option<Force> {
        let documents = lock(&self.notes.forced);
        documents.get(lock_id).map(|(force, _)| force.clone())
    }
}

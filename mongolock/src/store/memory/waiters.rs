//! The waiters of the in-memory store, by the rules of the commands in `store/waiters`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::DateTime;

use super::MemoryStore;
use crate::protocol::Ms;
use crate::store::mongo::millis;
use crate::store::{ProviderMark, Waiter, WaiterEntry, WaitersByName};
use crate::sync::lock;
use crate::timing::{WAITER_AHEAD, WAITER_KEPT};

/// The documents of the waiters: for each name those of its providers, in no order.
#[derive(Default)]
pub(super) struct WaiterDocuments(Mutex<HashMap<Arc<str>, Vec<WaiterDocument>>>);

struct WaiterDocument {
    waiter: Waiter,
    /// The time of the store's clock at which the document is removed.
    until: Ms,
}

impl MemoryStore {
    pub(crate) fn move_to_end(&self, entries: &[WaiterEntry]) {
        let now = self.now();
        for entry in entries {
            self.move_one(now, entry);
        }
    }

    fn move_one(&self, now: Ms, entry: &WaiterEntry) {
        let mut names = lock(&self.waiters.0);
        let documents = names.entry(Arc::clone(&entry.name)).or_default();
        let is_own = |document: &WaiterDocument| *document.waiter.provider == *entry.provider.as_str();
        let own = documents.iter().position(is_own);
        let own = own.map(|place| documents.swap_remove(place).waiter.at);
        let after_last = entry
            .last
            .map(|last| DateTime::from_millis(last.timestamp_millis().saturating_add(1)));
        let date = DateTime::from_millis(now);
        let latest = DateTime::from_millis(now + millis(WAITER_AHEAD));
        let places = [own, after_last].into_iter().flatten();
        let end = places.fold(date, DateTime::max).min(latest);
        let at = own.filter(|_| entry.keeps_place).unwrap_or(end);
        let before = |waited: Duration| DateTime::from_millis(now.saturating_sub(millis(waited)));
        let waiter = Waiter {
            provider: Arc::from(entry.provider.as_str()),
            owner: entry.owner.to_string(),
            at,
            since: entry.waited.map(before),
            time_slot: Duration::from_millis(u64::try_from(entry.time_slot.as_millis()).unwrap_or(u64::MAX)),
        };
        documents.push(WaiterDocument {
            waiter,
            until: now + millis(WAITER_KEPT),
        });
    }

    pub(crate) fn prolong_waits(&self, provider: &ProviderMark, of: &[Arc<str>]) {
        let until = self.now() + millis(WAITER_KEPT);
        let mut names = lock(&self.waiters.0);
        for name in of {
            let documents = names.get_mut(name).into_iter().flatten();
            for document in documents.filter(|document| *document.waiter.provider == *provider.as_str()) {
                document.until = until;
            }
        }
    }

    pub(crate) fn leave_lines(&self, provider: &ProviderMark, of: &[Arc<str>]) {
        let mut names = lock(&self.waiters.0);
        for name in of {
            if let Some(documents) = names.get_mut(name) {
                documents.retain(|document| *document.waiter.provider != *provider.as_str());
                if documents.is_empty() {
                    names.remove(name);
                }
            }
        }
    }

    /// The lines of these names. Documents whose time is over are removed.
    pub(crate) fn lines(&self, of: &[Arc<str>]) -> WaitersByName {
        let now = self.now();
        let mut names = lock(&self.waiters.0);
        let mut lines = WaitersByName::new();
        for name in of {
            let Some(documents) = names.get_mut(name) else {
                continue;
            };
            documents.retain(|document| document.until > now);
            if documents.is_empty() {
                names.remove(name);
                continue;
            }
            let mut line: Vec<Waiter> = documents.iter().map(|document| document.waiter.clone()).collect();
            line.sort_by_key(|waiter| waiter.at);
            lines.insert(Arc::clone(name), line);
        }
        lines
    }
}

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// The ids of claims that this process has given up and that the server may still have.
///
/// A lock that is held by one of them is not busy, because no holder uses it. A waiter that finds such an id in a reply
/// releases it and sends its acquire request again.
#[derive(Default)]
pub(crate) struct GivenUp {
    ids: Mutex<HashMap<Arc<str>, PendingIds>>,
}

#[derive(Clone, Copy)]
struct PendingIds {
    /// The number of pending releases of the id.
    releases: usize,
    /// The minimum hold that a release of the id leaves in the document.
    min_hold: Duration,
    /// The time before which a waiter does not release the id, because the work of its last holder may still go on.
    unused_from: Instant,
}

/// One pending release of an id; the id is forgotten with the last of them.
pub(crate) struct Pending {
    given_up: Arc<GivenUp>,
    lock_id: Arc<str>,
}

impl GivenUp {
    pub(crate) fn add(
        self: &Arc<Self>,
        lock_id: &Arc<str>,
        min_hold: Duration,
        unused_from: Instant,
    ) -> Pending {
        let mut ids = lock(&self.ids);
        let entry = ids.entry(Arc::clone(lock_id)).or_insert(PendingIds {
            releases: 0,
            min_hold,
            unused_from,
        });
        entry.releases += 1;
        entry.min_hold = entry.min_hold.max(min_hold);
        entry.unused_from = entry.unused_from.min(unused_from);
        Pending {
            given_up: Arc::clone(self),
            lock_id: Arc::clone(lock_id),
        }
    }

    /// The minimum hold with which the id is to be released, if it may be released now.
    pub(crate) fn find(&self, now: Instant, lock_id: &str) -> Option<Duration> {
        let entry = lock(&self.ids).get(lock_id).copied()?;
        (entry.unused_from <= now).then_some(entry.min_hold)
    }
}

impl Clone for Pending {
    fn clone(&self) -> Self {
        if let Some(entry) = lock(&self.given_up.ids).get_mut(&self.lock_id) {
            entry.releases += 1;
        }
        Self {
            given_up: Arc::clone(&self.given_up),
            lock_id: Arc::clone(&self.lock_id),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut ids = lock(&self.given_up.ids);
        if let Some(entry) = ids.get_mut(&self.lock_id) {
            entry.releases -= 1;
            if entry.releases == 0 {
                ids.remove(&self.lock_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_id_is_found_from_the_given_time_until_its_last_release() {
        let (given_up, id) = (Arc::new(GivenUp::default()), Arc::from("owner#1"));
        let later = Instant::now() + Duration::from_secs(1);
        let first = given_up.add(&id, Duration::ZERO, later);
        assert_eq!(
            given_up.find(Instant::now(), &id),
            None,
            "the work of its last holder may still go on"
        );
        tokio::time::sleep_until(later).await;
        assert_eq!(given_up.find(Instant::now(), &id), Some(Duration::ZERO));
        let min_hold = Duration::from_secs(5);
        let second = given_up.add(&id, min_hold, later);
        let third = second.clone();
        drop((first, second));
        assert_eq!(given_up.find(Instant::now(), &id), Some(min_hold));
        drop(third);
        assert_eq!(given_up.find(Instant::now(), &id), None);
        assert!(lock(&given_up.ids).is_empty());
    }
}

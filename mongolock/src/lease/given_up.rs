use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

use crate::store::ClaimEnd;
use crate::sync::lock;

/// The ids of claims that this process has given up and that the server may still have.
///
/// No holder uses such a claim. A caller that finds its id in a reply ends it and sends its request again. Then the lock is free,
/// unless the claim has resumed a detached lease, which is given back.
#[derive(Default)]
pub(crate) struct GivenUp {
    ids: Mutex<HashMap<Arc<str>, PendingIds>>,
}

struct PendingIds {
    /// The number of pending releases of the id.
    releases: usize,
    /// How a claim with the id is to end.
    end: ClaimEnd,
    /// The time before which a waiter does not release the id, because the work of its last holder may still go on.
    unused_from: Instant,
}

/// One pending release of an id; the id is forgotten with the last of them.
pub(crate) struct Pending {
    given_up: Arc<GivenUp>,
    lock_id: Arc<str>,
}

impl GivenUp {
    pub(crate) fn add(self: &Arc<Self>, lock_id: &Arc<str>, end: &ClaimEnd, unused_from: Instant) -> Pending {
        let mut ids = lock(&self.ids);
        let entry = ids.entry(Arc::clone(lock_id)).or_insert(PendingIds {
            releases: 0,
            end: end.clone(),
            unused_from,
        });
        entry.releases += 1;
        if *end > entry.end {
            entry.end = end.clone();
        }
        entry.unused_from = entry.unused_from.min(unused_from);
        Pending {
            given_up: Arc::clone(self),
            lock_id: Arc::clone(lock_id),
        }
    }

    /// Whether a lock that is held by this id is free as soon as the claim has ended, which may happen now.
    pub(crate) fn frees(&self, now: Instant, lock_id: &str) -> bool {
        matches!(self.find(now, lock_id), Some(ClaimEnd::Released { .. }))
    }

    /// The ids of claims that have resumed the detached lease with this id, and give it back.
    pub(crate) fn of_lease(&self, detached: &Arc<str>) -> Vec<Arc<str>> {
        let gives_back =
            |end: &ClaimEnd| matches!(end, ClaimEnd::GivenBack { lock_id, .. } if lock_id == detached);
        let ids = lock(&self.ids);
        let resumed = ids.iter().filter(|(_, pending)| gives_back(&pending.end));
        resumed.map(|(id, _)| Arc::clone(id)).collect()
    }

    /// How the claim with this id is to end, if that may happen now.
    pub(crate) fn find(&self, now: Instant, lock_id: &str) -> Option<ClaimEnd> {
        let ids = lock(&self.ids);
        let entry = ids.get(lock_id).filter(|entry| entry.unused_from <= now)?;
        Some(entry.end.clone())
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
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_id_is_found_from_the_given_time_until_its_last_release() {
        let (given_up, id) = (Arc::new(GivenUp::default()), Arc::from("owner#1"));
        let later = Instant::now() + Duration::from_secs(1);
        let first = given_up.add(&id, &ClaimEnd::RELEASED, later);
        assert_eq!(
            given_up.find(Instant::now(), &id),
            None,
            "the work of its last holder may still go on"
        );
        tokio::time::sleep_until(later).await;
        assert_eq!(given_up.find(Instant::now(), &id), Some(ClaimEnd::RELEASED));
        let kept = ClaimEnd::Released {
            min_hold: Duration::from_secs(5),
        };
        let second = given_up.add(&id, &kept, later);
        let third = second.clone();
        drop((first, second));
        assert_eq!(given_up.find(Instant::now(), &id), Some(kept));
        drop(third);
        assert_eq!(given_up.find(Instant::now(), &id), None);
        assert!(lock(&given_up.ids).is_empty());
    }
}

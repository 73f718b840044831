use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// The number of tenures of a name that are kept.
const REMEMBERED: usize = 64;

/// The claims that had each lock, with the times, by the server's documents.
#[derive(Default)]
pub(super) struct Tenures(Mutex<HashMap<Arc<str>, VecDeque<Tenure>>>);

pub(super) struct Tenure {
    /// The id of the claim, empty during a minimum hold.
    pub(super) lock_id: Arc<str>,
    /// The end of the lease.
    pub(super) until: Instant,
}

impl Tenures {
    /// Notes the present state of the document.
    pub(super) fn observe(&self, name: &str, lease: Option<(Arc<str>, Duration)>) {
        let now = Instant::now();
        let mut names = lock(&self.0);
        let tenures = names.entry(Arc::from(name)).or_default();
        if let Some(last) = tenures.back_mut() {
            match &lease {
                Some((lock_id, lasts)) if *lock_id == last.lock_id => {
                    last.until = now + *lasts;
                    return;
                }
                _ => last.until = last.until.min(now),
            }
        }
        if let Some((lock_id, lasts)) = lease {
            if tenures.len() == REMEMBERED {
                tenures.pop_front();
            }
            let until = now + lasts;
            tenures.push_back(Tenure { lock_id, until });
        }
    }

    /// Whether a tenure that ended after this time, or has not ended, meets the condition.
    pub(super) fn any_since(&self, name: &str, since: Instant, is_meant: impl Fn(&str) -> bool) -> bool {
        let names = lock(&self.0);
        let mut tenures = names.get(name).into_iter().flatten();
        tenures.any(|tenure| tenure.until >= since && is_meant(&tenure.lock_id))
    }
}

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, sleep_until};

use crate::sync::lock;

/// Documents that a foreign transaction has changed and not yet committed.
#[derive(Default)]
pub(super) struct Blocks(Mutex<HashMap<Arc<str>, Instant>>);

impl Blocks {
    pub(super) fn block(&self, name: &str, until: Instant) {
        lock(&self.0).insert(Arc::from(name), until);
    }

    /// Waits until nothing blocks the document; `false` if that takes longer than the limit of the command.
    pub(super) async fn wait(&self, name: &str, by: Instant) -> bool {
        while let Some(until) = self.blocked_until(name).filter(|until| *until > Instant::now()) {
            sleep_until(until.min(by)).await;
            if until > by {
                return false;
            }
        }
        true
    }

    /// The time at which the last block of the document ends or has ended.
    pub(super) fn blocked_until(&self, name: &str) -> Option<Instant> {
        lock(&self.0).get(name).copied()
    }
}

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::fleet::World;
use super::{between, chance};
use crate::store::SeenHold;

impl World {
    /// Ends leases by force and deletes documents, at random times.
    pub(super) async fn operate(self: Arc<Self>) {
        let rng = &mut self.plan.rng(1 << 32);
        while !self.is_over() {
            sleep(between(rng, 0, 3000)).await;
            let name = rng.usize(0..self.plan.names).to_string();
            if rng.u8(0..3) == 0 && self.plan.knobs.deletes_documents() {
                self.delete(&name);
            } else {
                let is_late = chance(rng, self.plan.knobs.late_effects);
                let delay = between(rng, 0, if is_late { 4000 } else { 5 });
                tokio::spawn(Arc::clone(&self).release_by_force(name, delay));
            }
        }
    }

    /// Releases a lock by force: the command takes effect some time after the read.
    async fn release_by_force(self: Arc<Self>, name: String, delay: Duration) {
        let now = self.server.memory.now();
        let seen = self.server.memory.sight(now, &name);
        sleep(delay).await;
        let Some(seen) = seen.filter(|sight| !sight.is_free(0)) else {
            return;
        };
        let holder = self.holder_of(&name);
        let hold = SeenHold::from((Arc::from(&*name), seen));
        let reply = self.server.memory_reply(now, &hold.row());
        let ended = reply.is_applied == Some(true);
        if ended {
            self.server.ledger.forced(&name, holder.clone());
        }
        if let Some(holder) = holder.filter(|_| ended) {
            self.server.works.forced(&name, &holder);
        }
        self.server
            .note(|| format!("{name} is released by force: {ended}"));
        self.server.observe(&name);
    }

    fn delete(&self, name: &str) {
        self.server.ledger.forced(name, self.holder_of(name));
        self.server.memory.delete(name);
        self.server.note(|| format!("{name} is deleted"));
        self.server.observe(name);
    }

    fn holder_of(&self, name: &str) -> Option<Arc<str>> {
        self.server.memory.claimed_by(name)
    }
}

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::between;
use super::fleet::World;
use super::plan::Scenario;

impl World {
    /// Runs a process of DistributedLock.MongoDB, which acquires the same locks.
    pub(super) async fn neighbour(self: Arc<Self>, number: u64) {
        let rng = &mut self.plan.rng((1 << 33) + number);
        let mut claims = 0;
        while !self.is_over() {
            sleep(between(rng, 0, if self.is_brief() { 60 } else { 1000 })).await;
            claims += 1;
            let name: Arc<str> = rng.usize(0..self.plan.names).to_string().into();
            let id: Arc<str> = format!("net-{number}-{claims}").into();
            self.hold_as_neighbour(&name, &id, rng).await;
        }
    }

    /// Whether the holds and pauses of these processes are short, so that they compete for many turns.
    fn is_brief(&self) -> bool {
        self.plan.scenario == Scenario::Turns
    }

    async fn hold_as_neighbour(&self, name: &Arc<str>, id: &Arc<str>, rng: &mut Rng) {
        let (server, expiry) = (&self.server, between(rng, 1000, 4000));
        let sent = Instant::now();
        sleep(between(rng, 0, 5)).await;
        if !server.memory.neighbour_claims(name, id, expiry) {
            return;
        }
        server.note(|| format!("{id} begins {name}"));
        server.observe(name);
        server
            .ledger
            .neighbour_holds(name, id, sent + without_margin(expiry));
        self.server.turns.acquired_by_neighbour(name);
        let until = Instant::now() + between(rng, 0, if self.is_brief() { 5 } else { 3000 });
        while Instant::now() < until {
            sleep((until - Instant::now()).min(expiry / 3)).await;
            let sent = Instant::now();
            sleep(between(rng, 0, 5)).await;
            if !server.memory.neighbour_renews(name, id, expiry) {
                return server.ledger.neighbour_ends(name);
            }
            server.observe(name);
            server
                .ledger
                .neighbour_holds(name, id, sent + without_margin(expiry));
        }
        server.ledger.neighbour_ends(name);
        // One process of five crashes, and its lease expires.
        if self.is_brief() || rng.u8(0..5) > 0 {
            server.memory.neighbour_releases(name, id);
            server.observe(name);
        }
    }
}

fn without_margin(expiry: Duration) -> Duration {
    expiry.mul_f64(0.95)
}

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::between;
use super::fleet::World;
use super::knobs::APART;

/// An hour in milliseconds.
const HOUR: i64 = 3_600_000;

impl World {
    /// Starts the faults of the server, which all end with the simulation.
    pub(super) fn disturb(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let (knobs, mut tasks) = (&self.plan.knobs, Vec::new());
        let mut start =
            |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| tasks.push(tokio::spawn(task));
        if knobs.blocked_documents {
            start(Box::pin(Arc::clone(self).block_documents()));
        }
        if knobs.operators {
            start(Box::pin(Arc::clone(self).operate()));
        }
        if let Some(retention) = knobs.retention {
            start(Box::pin(Arc::clone(self).sweep(retention)));
        }
        for number in 0..knobs.neighbours as u64 {
            start(Box::pin(Arc::clone(self).neighbour(number)));
        }
        if knobs.outages {
            start(Box::pin(Arc::clone(self).fall_silent()));
        }
        if knobs.failovers {
            start(Box::pin(Arc::clone(self).fail_over()));
        }
        if let Some(longest) = knobs.overload {
            start(Box::pin(Arc::clone(self).overload(longest)));
        }
        if knobs.clock_an_hour_ahead {
            start(Box::pin(Arc::clone(self).step_the_clock()));
        }
        tasks
    }

    async fn block_documents(self: Arc<Self>) {
        let rng = &mut self.plan.rng(1 << 34);
        while !self.is_over() {
            sleep(between(rng, 0, 4000)).await;
            let name = self.plan.document(rng);
            let longest = if rng.bool() { 500 } else { 8000 };
            let lasts = between(rng, 0, longest);
            self.server.note(|| format!("{name} is blocked for {lasts:?}"));
            self.server.blocks.block(&name, Instant::now() + lasts);
        }
    }

    async fn sweep(self: Arc<Self>, retention: Duration) {
        while !self.is_over() {
            sleep(Duration::from_millis(500)).await;
            self.server.memory.sweep(retention);
        }
    }

    async fn fall_silent(self: Arc<Self>) {
        let rng = &mut self.plan.rng(1 << 35);
        while !self.is_over() {
            sleep(between(rng, 0, 30_000)).await;
            self.server.refuses.store(rng.bool(), Relaxed);
            self.server.silent.store(true, Relaxed);
            self.server.note(|| "nothing answers".into());
            sleep(between(rng, 200, 150_000)).await;
            self.server.silent.store(false, Relaxed);
            self.server.note(|| "the server answers again".into());
        }
    }

    async fn fail_over(self: Arc<Self>) {
        let rng = &mut self.plan.rng(1 << 36);
        let mut jump = if self.plan.scenario.has_several_kinds() {
            0
        } else {
            i64::try_from(APART.as_millis()).unwrap_or(i64::MAX)
        };
        while !self.is_over() {
            sleep(between(rng, 1000, 10_000)).await;
            self.server.step_down();
            self.jump(jump);
            jump = -jump;
            sleep(between(rng, 0, 2500)).await;
            self.server.step_up();
        }
    }

    /// Moves the clock an hour ahead and back. Leases that were granted meanwhile end only after an hour, hence the last
    /// jump.
    async fn step_the_clock(self: Arc<Self>) {
        let rng = &mut self.plan.rng(1 << 37);
        while !self.is_over() {
            sleep(between(rng, 1000, 10_000)).await;
            self.jump(HOUR);
            sleep(between(rng, 100, 5000)).await;
            self.jump(-HOUR);
        }
        self.jump(2 * HOUR);
    }

    /// Moves the server's clock.
    pub(super) fn jump(&self, millis: i64) {
        self.server.memory.jump(millis);
        if millis != 0 {
            for name in 0..self.plan.names {
                self.server.observe(&name.to_string());
            }
        }
    }
}

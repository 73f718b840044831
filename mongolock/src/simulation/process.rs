//! A process: a provider with a network of its own, and its callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::line::Line;
use super::link::Link;
use super::plan::Knob::Crashes;
use super::work::Caller;
use super::world::World;
use super::{chance, disturbances, millis};
use crate::protocol::Ms;
use crate::provider::LockProviderBuilder;
use crate::{LockError, LockProvider, lock_id};

pub(super) struct Process {
    pub(super) line: Arc<Line>,
    pub(super) provider: LockProvider,
    is_stopping: AtomicBool,
}

/// Runs one process after another until the end, and returns the last one.
pub(super) async fn slot(world: Arc<World>, slot: usize) -> Arc<Process> {
    for number in 0.. {
        let process = Process::start(&world, slot * 100 + number);
        let mut callers = JoinSet::new();
        for _ in 0..world.plan.callers {
            callers.spawn(Caller(Arc::clone(&process)).works());
        }
        let lasts = if world.plan.has(Crashes) {
            millis(1000..=12_000)
        } else {
            Duration::from_secs(100_000)
        };
        let has_ended = timeout(lasts, ended(&world, &mut callers)).await.is_ok();
        if has_ended || world.is_over() {
            ended(&world, &mut callers).await;
            return process;
        }
        process.ends(&mut callers).await;
    }
    unreachable!("no run has so many processes")
}

/// Waits for the end of all callers.
async fn ended(world: &World, callers: &mut JoinSet<()>) {
    while let Some(ended) = callers.join_next().await {
        let has_panicked = ended.is_err_and(|error| error.is_panic());
        world.check(!has_panicked, || "a caller has panicked".to_owned());
    }
}

impl Process {
    fn start(world: &Arc<World>, number: usize) -> Arc<Self> {
        let line = Line::new(world, number, true);
        let provider = LockProviderBuilder::simulated(Link(Arc::clone(&line)));
        let provider = provider.owner(owner(number)).wake_up(chance(750));
        let provider = provider.build().expect("the options are valid");
        world.note(|| format!("{number} starts"));
        disturbances::begin_pauses(&line);
        Arc::new(Self {
            line,
            provider,
            is_stopping: AtomicBool::new(false),
        })
    }

    /// The process crashes, or is shut down.
    async fn ends(&self, callers: &mut JoinSet<()>) {
        let (world, number) = (&self.line.world, self.line.number);
        self.is_stopping.store(true, Relaxed);
        if fastrand::bool() {
            world.note(|| format!("{number} crashes"));
            self.line.dies();
            callers.abort_all();
            return ended(world, callers).await;
        }
        let (begun, grace) = (Instant::now(), fastrand::bool().then(|| millis(0..=3000)));
        world.note(|| format!("{number} shuts down after {grace:?}"));
        match grace {
            Some(grace) => self.provider.shutdown_after(grace).await,
            None => self.provider.shutdown().await,
        }
        let most = grace.unwrap_or_default() + Duration::from_secs(1);
        let is_late = begun.elapsed() > most && self.is_quiet(20_000);
        world.check(!is_late, || {
            format!("the shutdown of {number} took {:?}", begun.elapsed())
        });
        ended(world, callers).await;
        // At the server an expired lease ends a little later than for its holder.
        sleep(Duration::from_millis(150)).await;
        self.check_has_released_all();
    }

    /// Whether no fault had an effect for this number of milliseconds.
    fn is_quiet(&self, millis: i64) -> bool {
        self.line.trouble_until() < self.world().now() - millis
    }

    /// After a shutdown with a reply to each command nothing is left at the server.
    fn check_has_released_all(&self) {
        let world = &self.line.world;
        let own = owner(self.line.number);
        let mut left = world.memory.taken();
        left.retain(|(_, id)| lock_id::owner(id) == Some(&own));
        world.check(left.is_empty() || !self.is_quiet(20_000), || {
            format!("a shutdown leaves {left:?}")
        });
    }

    pub(super) fn world(&self) -> &World {
        &self.line.world
    }

    /// Whether a call that has begun at this time may end with this error.
    pub(super) fn may_fail(&self, begun: Ms, error: &LockError) -> bool {
        match error {
            LockError::Mongo(_) => !self.is_quiet_since(begun) || self.is_stopping(),
            LockError::ShutDown { .. } => self.is_stopping(),
            _ => false,
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// Whether no fault had an effect since this time of the server's clock.
    pub(super) fn is_quiet_since(&self, at: Ms) -> bool {
        self.line.trouble_until() < World::of_server(at)
    }

    /// At the end nothing is left in the process.
    pub(super) async fn check_is_idle(&self) {
        let (held, health) = (self.provider.held(), self.provider.health().await);
        let is_idle = held.is_empty() && health.held == 0 && health.waiting == 0;
        self.line.world.check(is_idle, || {
            format!("left in {}: {held:?}, {health:?}", self.line.number)
        });
    }
}

fn owner(number: usize) -> String {
    format!("process-{number}")
}

//! Runs the real engine and its faces against a server in memory, behind an unreliable network and in virtual time.
//! `README.md` says what is simulated, and what counts as a violation.

mod calls;
mod disturbances;
mod errors;
mod holds;
mod ledger;
mod line;
mod link;
mod plan;
mod process;
mod stream;
mod tests;
mod wish;
mod work;
mod world;

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::engine::HAS_SEED;
pub(crate) use link::Link;
use plan::{Plan, Scenario};
use world::World;

/// The time after the last fault in which every call ends, and then the time in which every lock becomes free.
const PATIENCE: Duration = Duration::from_secs(200);

thread_local! {
    /// The number of panics on this thread. Only this counter notices panics of the engine's own tasks.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Whether an event happens that has this probability in thousandths.
fn chance(permille: u32) -> bool {
    permille > 0 && fastrand::u32(0..1000) < permille
}

/// A random time in this range of milliseconds.
fn millis(range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(fastrand::u64(range))
}

fn choice<T: Clone>(of: &[T]) -> T {
    of[fastrand::usize(..of.len())].clone()
}

/// Runs one seed of a scenario.
fn run(scenario: &'static Scenario, seed: u64, prints: bool) -> Arc<World> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // The thread may be ending.
            let _ = PANICS.try_with(|panics| panics.set(panics.get() + 1));
            usual(info);
        }));
    });
    fastrand::seed(seed);
    HAS_SEED.set(true);
    PANICS.set(0);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    let runtime = runtime.expect("it needs nothing of the operating system");
    let world = runtime.block_on(simulate(scenario, prints));
    drop(runtime);
    HAS_SEED.set(false);
    world.check(PANICS.get() == 0, || "a task has panicked".to_owned());
    world
}

async fn simulate(scenario: &'static Scenario, prints: bool) -> Arc<World> {
    let world = Arc::new(World::new(Plan::new(scenario), prints));
    disturbances::begin(&world);
    let slots = (0..world.plan.processes).map(|slot| tokio::spawn(process::slot(Arc::clone(&world), slot)));
    let slots: Vec<_> = slots.collect();
    sleep(world.plan.lasts).await;
    world.end_faults();
    let mut last = Vec::new();
    for slot in slots {
        let ended = timeout(PATIENCE, slot).await;
        world.check(ended.is_ok(), || {
            format!("calls do not end: {:?}", world.ledger().calls)
        });
        last.extend(ended.ok().and_then(Result::ok));
    }
    // The last pause and the last command without a reply end.
    sleep(Duration::from_secs(20)).await;
    sleep(PATIENCE).await;
    for process in &last {
        process.check_is_idle().await;
    }
    let taken = world.memory.taken();
    world.check(taken.is_empty(), || format!("still taken at the end: {taken:?}"));
    world
}

//! The disturbances from outside the processes: by the server and by operators.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;

use super::calls::look_for_idle_locks;
use super::line::Line;
use super::link::Link;
use super::plan::Knob::*;
use super::wish::Wish;
use super::world::World;
use super::{choice, millis};
use crate::permit_id;
use crate::provider::LockProviderBuilder;

/// Starts all disturbances of the scenario.
pub(super) fn begin(world: &Arc<World>) {
    let has = |knob| world.plan.has(knob);
    start(true, watch(Arc::clone(world)));
    start(has(Failovers), failovers(Arc::clone(world)));
    start(has(Overload), overload(Arc::clone(world)));
    start(has(Operators), operator(Arc::clone(world)));
    start(has(Sweeps), sweeps(Arc::clone(world)));
}

/// Starts the pauses of one process.
pub(super) fn begin_pauses(line: &Arc<Line>) {
    start(line.world.plan.has(Pauses), pauses(Arc::clone(line)));
}

fn start(has_it: bool, disturbance: impl Future<Output = ()> + Send + 'static) {
    if has_it {
        tokio::spawn(disturbance);
    }
}

async fn watch(world: Arc<World>) {
    loop {
        sleep(Duration::from_millis(100)).await;
        look_for_idle_locks(&world);
    }
}

async fn pauses(line: Arc<Line>) {
    while !line.world.is_over() {
        sleep(millis(500..=8000)).await;
        let lasts = millis(10..=choice(&[200, 2000, 9000]));
        line.world
            .note(|| format!("{} pauses for {lasts:?}", line.number));
        line.pauses(lasts);
        sleep(lasts).await;
    }
}

async fn failovers(world: Arc<World>) {
    while !world.is_over() {
        sleep(millis(2000..=12_000)).await;
        let lasts = fastrand::i64(1000..=12_000);
        world.note(|| format!("no primary for {lasts} ms"));
        world.no_primary_until.store(world.now() + lasts, Relaxed);
        world.elections.fetch_add(1, Relaxed);
    }
}

async fn overload(world: Arc<World>) {
    while !world.is_over() {
        sleep(millis(1000..=6000)).await;
        let rejected = choice(&[300, 700, 900, 1000]);
        world.note(|| format!("{rejected} of 1000 commands are rejected"));
        world.rejected.store(rejected, Relaxed);
        sleep(millis(500..=if rejected == 1000 { 2000 } else { 8000 })).await;
        world.rejected.store(0, Relaxed);
    }
}

async fn sweeps(world: Arc<World>) {
    while !world.is_over() {
        sleep(millis(200..=4000)).await;
        let deleted = world.memory.sweep(millis(0..=2000));
        world.note(|| format!("the server deletes {deleted:?}"));
        let now = world.memory.now();
        let deleted = deleted.into_iter().map(|name| (name, now));
        world.ledger().deleted.extend(deleted);
    }
}

async fn operator(world: Arc<World>) {
    let line = Line::new(&world, 1000, false);
    let provider = LockProviderBuilder::simulated(Link(line)).with_defaults();
    while !world.is_over() {
        sleep(millis(100..=3000)).await;
        let name = choice(&Wish::draw(&world.plan, world.plan.work(), world.now()).documents);
        world.note(|| format!("an operator releases {name}"));
        world.ledger().is_forced(&name, world.memory.now());
        let forcing = match permit_id::parts(&name) {
            Some((semaphore, number)) => provider.admin().force_release(semaphore).permit(number),
            None => provider.admin().force_release(&*name),
        };
        let forced = forcing.await;
        world.check(forced.is_ok(), || format!("an operator fails: {forced:?}"));
        world.ledger().is_forced(&name, world.memory.now());
    }
}

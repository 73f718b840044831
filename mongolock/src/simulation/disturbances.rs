//! The disturbances from outside the processes: by the server, operators and other programs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::calls::look_for_idle_locks;
use super::holds::begins;
use super::line::Line;
use super::link::Link;
use super::plan::Knob::*;
use super::plan::Work;
use super::wish::Wish;
use super::world::World;
use super::{chance, choice, millis};
use crate::permit_id;
use crate::protocol::Name;
use crate::provider::LockProviderBuilder;

/// Starts all disturbances of the scenario.
pub(super) fn begin(world: &Arc<World>) {
    let has = |knob| world.plan.has(knob);
    start(true, watch(Arc::clone(world)));
    start(has(Failovers), failovers(Arc::clone(world)));
    start(has(Overload), overload(Arc::clone(world)));
    start(has(Operators), operator(Arc::clone(world)));
    start(has(Sweeps), sweeps(Arc::clone(world)));
    start(has(Neighbours), neighbour(Arc::clone(world)));
    start(has(Leaps), leaps(Arc::clone(world)));
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
        world
            .ledger()
            .deleted
            .extend(deleted.into_iter().map(|name| (name, now)));
    }
}

async fn leaps(world: Arc<World>) {
    while !world.is_over() {
        sleep(rest()).await;
        let jump = fastrand::i64(-2000..=8000);
        world.note(|| format!("the clock jumps by {jump} ms"));
        world.memory.jump(jump);
    }
}

/// The time between two acts of an operator or another program.
fn rest() -> Duration {
    millis(100..=3000)
}

/// A document of this work.
fn document(world: &World, work: Work) -> Name {
    choice(&Wish::draw(&world.plan, work, world.now()).documents)
}

async fn operator(world: Arc<World>) {
    let line = Line::new(&world, 1000, false);
    let provider = LockProviderBuilder::simulated(Link(line)).with_defaults();
    while !world.is_over() {
        sleep(rest()).await;
        let name = document(&world, world.plan.work());
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

/// A program with DistributedLock.MongoDB: it asks repeatedly, renews its lease, and finally deletes the document.
async fn neighbour(world: Arc<World>) {
    let expiry = Duration::from_secs(2);
    while !world.is_over() {
        sleep(rest()).await;
        let (name, id) = (document(&world, Work::Lock), Arc::from("neighbour"));
        let (begun, holds) = (Instant::now(), millis(1..=3000));
        if !world.memory.neighbour_claims(&name, &id, expiry) {
            continue;
        }
        world.note(|| format!("a neighbour holds {name}"));
        let (now, names) = (world.memory.now(), [Arc::clone(&name)]);
        let believes = Box::new(move || begun.elapsed() < holds);
        let key = begins(&world, "a neighbour", now, &names, believes);
        for _ in 0..holds.as_millis() / 500 {
            sleep(Duration::from_millis(500)).await;
            let is_renewed = world.memory.neighbour_renews(&name, &id, expiry);
            world.check(is_renewed || world.plan.has(Operators), || {
                format!("a neighbour has lost {name}")
            });
        }
        world.ledger().holders.remove(&key);
        // A crash leaves the document.
        if chance(800) && world.memory.neighbour_releases(&name, &id) {
            world.ledger().deleted.insert(name, world.memory.now());
        }
    }
}

//! Simulates many processes and one server in virtual time, with random faults between them that follow from a seed.
//! `README.md` in this folder describes the files and the defects that the simulation finds.
//!
//! `MONGOLOCK_SEEDS=10000` runs that number of seeds; `MONGOLOCK_SEED=7` runs that seed and prints its events with
//! their times.

mod blocks;
mod contacts;
mod disturbances;
pub(crate) mod errors;
mod fleet;
mod handles;
mod hints;
mod jobs;
mod knobs;
mod ledger;
mod line_link;
mod link;
mod neighbour;
mod operator;
mod order;
mod overload;
mod own_claims;
mod plan;
mod pool;
mod process;
mod replies;
mod seeds;
mod server;
mod targets;
mod tenure;
mod tests;
mod trip;
mod turns;
mod verdict;
mod wake_ups;
mod wish;
mod worker;
mod works;

use std::time::Duration;

use fastrand::Rng;

pub(crate) use hints::Hints;
pub(crate) use link::Link;
pub(crate) use own_claims::silent_provider;
pub(crate) use process::spawn;

/// A random duration in whole milliseconds.
fn between(rng: &mut Rng, min: u64, max: u64) -> Duration {
    Duration::from_millis(rng.u64(min..=max))
}

fn chance(rng: &mut Rng, in_a_thousand: u32) -> bool {
    rng.u32(0..1000) < in_a_thousand
}

//! The time that a call takes without a server.

use std::time::Instant;

use mongolock::LockProvider;

use crate::report::Goal::AtMost;
use crate::report::Report;
use crate::samples::{Samples, millis};
use crate::setting::Setting;

/// The goal of a cycle in microseconds.
const TIME: f64 = 2.0;
/// The number of cycles of one measurement: a single one is too short for the clock.
const BATCH: u32 = 200;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let rounds = setting.pick(2_000, 300);
    let times = tokio::task::spawn_blocking(move || {
        // On one thread, which also runs the provider's tasks.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build()?.block_on(times(rounds))
    });
    let cycle = times.await??.p50() * 1e3 / f64::from(BATCH);
    report.figure("acquire and release, p50", cycle, "us", AtMost(TIME));
    Ok(())
}

/// The times of batches of cycles, in milliseconds.
async fn times(rounds: u32) -> anyhow::Result<Samples> {
    let provider = LockProvider::in_memory();
    let mut times = Samples::default();
    for _ in 0..rounds {
        let begun = Instant::now();
        for _ in 0..BATCH {
            provider.lock("cycle").acquire().await?.release().await?;
        }
        times.add(millis(begun.elapsed()));
    }
    Ok(times)
}

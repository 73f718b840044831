//! What a call costs without a server: its time, and the sizes of futures.

use std::time::Instant;

use mongolock::{LockError, LockProvider, distributed_lock};

use crate::report::Goal::AtMost;
use crate::report::Report;
use crate::samples::{Samples, millis};
use crate::setting::Setting;

/// The goal of a cycle in microseconds.
const TIME: f64 = 2.0;
/// The goals of a future, and of what the attribute adds to one, in bytes.
const FUTURE: f64 = 160.0;
const ATTRIBUTE: f64 = 1024.0;
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
    let provider = LockProvider::in_memory();
    let acquire = size_of_val(&provider.lock("future").acquire());
    report.figure("the future of `acquire`", acquire, "bytes", AtMost(FUTURE));
    let bare = size_of_val(&work());
    let added = size_of_val(&attributed(&provider)) - bare;
    let goal = AtMost(ATTRIBUTE);
    report.figure("future: added by the attribute", added, "bytes", goal);
    let with_run = async { provider.lock("run").run(|_| work()).await };
    let added = size_of_val(&with_run) - bare;
    report.figure("future: added by `run`", added, "bytes", None);
    Ok(())
}

async fn work() -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(name = "attribute", provider = provider)]
async fn attributed(provider: &LockProvider) -> Result<(), LockError> {
    work().await
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

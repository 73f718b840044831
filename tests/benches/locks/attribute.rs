//! The attribute beside the closure form of the runtime, and what it adds to a future.
//!
//! Both call the same functions, so that a difference is the expansion's own. On a server the commands hide it; in memory,
//! on one thread, nothing does.

use std::time::Instant;

use mongolock::{LockError, LockProvider, distributed_lock};

use crate::in_memory::on_one_thread;
use crate::report::{Report, micros};
use crate::samples::{self, Samples, ratio};
use crate::setting::Setting;

const GOAL: f64 = 1.01;
const BYTES: f64 = 1024.0;
/// The goal of a call in memory, in microseconds.
const IN_MEMORY: f64 = 2.0;
/// The number of calls of one measurement in memory: a single one is too short for the clock.
const BATCH: u32 = 200;

async fn work(id: u64) -> u64 {
    tokio::task::yield_now().await;
    id
}

async fn plain(_provider: &LockProvider, id: u64) -> Result<u64, LockError> {
    Ok(work(id).await)
}

#[distributed_lock(name = "attribute:<id>", provider = provider)]
async fn attributed(provider: &LockProvider, id: u64) -> Result<u64, LockError> {
    Ok(work(id).await)
}

async fn closure(provider: &LockProvider, id: u64) -> Result<u64, LockError> {
    let lock = provider.lock(format_args!("attribute:{id}"));
    lock.run(|_| async move { Ok(work(id).await) }).await
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = setting.access().provider().await?;
    let rounds = setting.pick(2_000, 300);
    let [with_attribute, with_closure] = compare(&provider, rounds, 1).await?;
    report.micros("on the server: attribute, p50", with_attribute.p50());
    report.micros("on the server: `run`, p50", with_closure.p50());
    let over = ratio(with_attribute.p50(), with_closure.p50());
    report.at_most(GOAL, "on the server: attribute / `run`, p50", over, "x");
    provider.shutdown().await;

    let rounds = setting.pick(2_000, 300);
    let in_memory = tokio::task::spawn_blocking(move || compare_in_memory(rounds));
    let [with_attribute, with_closure] = in_memory.await??;
    let of_each = |samples: &Samples| micros(samples.p50() / BATCH);
    report.at_most(
        IN_MEMORY,
        "in memory: attribute, p50",
        of_each(&with_attribute),
        "us",
    );
    report.at_most(IN_MEMORY, "in memory: `run`, p50", of_each(&with_closure), "us");
    let over = ratio(with_attribute.p50(), with_closure.p50());
    report.at_most(GOAL, "in memory: attribute / `run`, p50", over, "x");
    sizes(report);
    Ok(())
}

fn compare_in_memory(rounds: u32) -> anyhow::Result<[Samples; 2]> {
    on_one_thread(async { compare(&LockProvider::in_memory(), rounds, BATCH).await })
}

/// The times of batches of calls with the attribute, and with a closure.
async fn compare(provider: &LockProvider, rounds: u32, batch: u32) -> anyhow::Result<[Samples; 2]> {
    let run = async |is_closure: bool| {
        let begun = Instant::now();
        for _ in 0..batch {
            if is_closure {
                closure(provider, 7).await?;
            } else {
                attributed(provider, 7).await?;
            }
        }
        Ok(begun.elapsed())
    };
    samples::compare(50, rounds, run).await
}

#[expect(clippy::cast_precision_loss, reason = "sizes of futures are small")]
fn sizes(report: &mut Report) {
    let provider = LockProvider::in_memory();
    let bare = size_of_val(&plain(&provider, 7)) as f64;
    let with_attribute = size_of_val(&attributed(&provider, 7)) as f64;
    let with_closure = size_of_val(&closure(&provider, 7)) as f64;
    report.at_most(
        BYTES,
        "future: added by the attribute",
        with_attribute - bare,
        "bytes",
    );
    report.figure("future: added by `run`", with_closure - bare, "bytes");
}

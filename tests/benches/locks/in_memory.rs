//! What a call costs without a server: its time, its instructions, and its memory.
//!
//! The instructions are counted by valgrind, if it is installed: as the difference between two numbers of cycles, so that the
//! start of the process does not count. No other work on the machine changes them.

use std::time::{Duration, Instant};

use anyhow::Context;
use mongolock::LockProvider;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::child;
use crate::memory::{each, resident};
use crate::report::{Report, micros};
use crate::samples::{Samples, number};
use crate::setting::Setting;
use crate::worker::{Job, print, ready};

/// The goals of a cycle in microseconds and in instructions.
const TIME: f64 = 2.0;
const INSTRUCTIONS: f64 = 9_000.0;
/// The goals of a future and of a waiter in bytes.
const FUTURE: f64 = 160.0;
const WAITER: f64 = 1_000.0;

/// The number of cycles of one measurement: a single one is too short for the clock.
const BATCH: u32 = 200;
/// The numbers of cycles whose instructions are counted.
const COUNTED: [u32; 2] = [2_000, 6_000];
const WAITERS: usize = 100_000;

/// The memory of waiters: the future of a call, and a waiter with its task.
#[derive(Serialize, Deserialize)]
struct Waiting {
    future: usize,
    bytes: f64,
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let rounds = setting.pick(2_000, 300);
    let times = tokio::task::spawn_blocking(move || on_one_thread(times(rounds))).await??;
    report.at_most(
        TIME,
        "acquire and release, p50",
        micros(times.p50() / BATCH),
        "us",
    );
    let instructions = [
        instructions(setting, COUNTED[0]).await?,
        instructions(setting, COUNTED[1]).await?,
    ];
    if let [Some(few), Some(many)] = instructions {
        let of_each = number(many - few) / number(COUNTED[1] - COUNTED[0]);
        report.at_most(INSTRUCTIONS, "acquire and release", of_each, "instr.");
    }
    let mut process = [child::start(setting.access(), Job::WaitInMemory).await?];
    child::go(&mut process).await;
    let waiting: Waiting = child::last_results(process.into()).await?.remove(0);
    report.at_most(FUTURE, "the future of `acquire`", waiting.future, "bytes");
    let name = "a waiter behind the first one, with its task";
    report.at_most(WAITER, name, waiting.bytes, "bytes");
    Ok(())
}

/// Runs this on one thread, which also runs the provider's tasks.
pub(crate) fn on_one_thread<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

/// The times of batches of cycles.
async fn times(rounds: u32) -> anyhow::Result<Samples> {
    let provider = LockProvider::in_memory();
    let mut times = Samples::default();
    for _ in 0..rounds {
        let begun = Instant::now();
        cycles(&provider, BATCH).await?;
        times.add(begun.elapsed());
    }
    Ok(times)
}

async fn cycles(provider: &LockProvider, count: u32) -> anyhow::Result<()> {
    for _ in 0..count {
        provider.lock("cycle").acquire().await?.release().await?;
    }
    Ok(())
}

/// The instructions of a process that does this number of cycles; `None` without valgrind.
async fn instructions(setting: &Setting, cycles: u32) -> anyhow::Result<Option<u64>> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
    ]);
    // Else a copy counts each byte or each 32 bytes, by the machine.
    valgrind.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1000000000");
    valgrind.arg(std::env::current_exe()?);
    valgrind.args(child::arguments(setting.access(), Job::Cycle(cycles))?);
    let output = match valgrind.output().await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("the instructions are not counted: valgrind is not installed");
            return Ok(None);
        }
        output => output?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said
        .lines()
        .find(|line| line.contains("I refs:") || line.contains("I   refs:"));
    let line = line.with_context(|| format!("valgrind counts no instructions: {said}"))?;
    let (_, digits) = line.rsplit_once(' ').context("a number at the end of the line")?;
    Ok(Some(digits.replace(',', "").parse()?))
}

/// The job of the process whose instructions are counted.
pub(crate) async fn cycle(count: u32) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || {
        on_one_thread(async { cycles(&LockProvider::in_memory(), count).await })
    })
    .await?
}

/// The job of the process whose waiters are measured.
pub(crate) async fn wait() -> anyhow::Result<()> {
    let provider = LockProvider::in_memory();
    let holder = provider.to_builder().build()?;
    let guard = holder.lock("waiters").acquire().await?;
    let lock = provider.lock("waiters").acquire_timeout(None);
    let future = size_of_val(&lock.acquire());
    ready().await;
    let before = resident()?;
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        tasks.spawn(lock.acquire());
    }
    sleep(Duration::from_millis(500)).await;
    print(&Waiting {
        future,
        bytes: each(before, resident()?, WAITERS),
    })?;
    tasks.shutdown().await;
    guard.release().await?;
    Ok(())
}

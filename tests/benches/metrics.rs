//! The instructions of a lock's cycle, an acquire and its release, with and without metrics.
//!
//! `cargo bench -p mongolock-tests --bench metrics` counts them with the feature, without a recorder and with that of the
//! Prometheus exporter, and `… --no-default-features` without it. Both print the cycle in memory and on a server, which
//! includes the driver's work in this process. The instructions are counted by `valgrind`.

use std::env;
use std::process::Command;

use anyhow::{Context, ensure};
use mongolock::LockProvider;
use mongolock_tests::test_db;

/// The number of cycles in memory and on a server.
const CYCLES: [u32; 2] = [2_000, 500];

/// The recorders that are compared: with a number of cycles as the last argument, the program runs that many.
const RECORDERS: &[&str] = if cfg!(feature = "metrics") {
    &["none", "prometheus"]
} else {
    &["none"]
};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [place, recorder, cycles] = &arguments[..] {
        return run(place, recorder, cycles.parse()?);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("nothing is measured: run `cargo bench` instead of `cargo test`");
        return Ok(());
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let db = runtime.block_on(test_db());
    for (place, cycles) in [("memory", CYCLES[0]), (db.uri(), CYCLES[1])] {
        for recorder in RECORDERS {
            // The difference of two runs leaves out the start and the end of the program.
            let once = instructions(place, recorder, cycles)?;
            let thrice = instructions(place, recorder, cycles * 3)?;
            #[expect(clippy::cast_precision_loss, reason = "the counts are far below 2^53")]
            let a_cycle = (thrice - once) as f64 / f64::from(cycles * 2);
            let place = if place == "memory" { place } else { "server" };
            println!("{place:<8} recorder {recorder:<12} {a_cycle:>12.0} instructions a cycle");
        }
    }
    Ok(())
}

/// The instructions of this program with so many cycles.
fn instructions(place: &str, recorder: &str, cycles: u32) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args([place, recorder, &cycles.to_string()])
        .output()
        .context("valgrind")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    let collected = errors
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.with_context(|| format!("valgrind counted nothing: {errors}"))
}

/// Runs the cycles, in memory or on the server of a connection string.
fn run(place: &str, recorder: &str, cycles: u32) -> anyhow::Result<()> {
    install(recorder)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let locks = match place {
            "memory" => LockProvider::in_memory(),
            uri => LockProvider::connect(uri).await?,
        };
        let lock = locks.lock("measured");
        for _ in 0..cycles {
            lock.acquire().await?.release().await?;
        }
        locks.shutdown().await;
        Ok(())
    })
}

/// Installs a recorder; without the feature there is none to choose.
fn install(recorder: &str) -> anyhow::Result<()> {
    #[cfg(feature = "metrics")]
    if recorder == "prometheus" {
        metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
        return Ok(());
    }
    ensure!(recorder == "none", "there is no recorder `{recorder}`");
    Ok(())
}

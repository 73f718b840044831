//! The cost of locking, compared with the cost of the same work without mongolock.
//!
//! `cargo bench -p mongolock-tests --bench locks` prints a table and writes `mongolock-bench.json` into cargo's target
//! directory; `-- --only <group>` runs one group, `-- --quick` measures for a shorter time and less precisely.
//!
//! The speed of the machine must not decide whether a goal is met. Each goal is therefore a ratio to a baseline: the
//! same commands sent by the driver alone, or the same work without a lock. In one run the baseline and mongolock are
//! measured in turns. A missed goal is not an error: the table shows which goals were met.

mod attribute;
mod bare;
mod clock;
mod contended;
mod fencing;
mod held;
mod memory;
mod processes;
mod report;
mod samples;
mod setting;
mod uncontended;
mod waiters;
mod worker;

use anyhow::bail;

use crate::report::Report;
use crate::setting::Setting;

/// The groups of measurements, in the order in which they run.
const GROUPS: [&str; 7] = [
    "uncontended",
    "attribute",
    "contended",
    "processes",
    "waiters",
    "held",
    "fencing",
];

/// The arguments of the command line.
#[derive(Default)]
struct Options {
    only: Option<String>,
    quick: bool,
    /// `--bench`: `cargo bench` sets it, and `cargo test --all-targets`, which also runs this program, does not.
    bench: bool,
    /// The job of this process if the group `processes` has started it.
    worker: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = parse(std::env::args().skip(1))?;
    if let Some(job) = &options.worker {
        return worker::run(job).await;
    }
    if !options.bench {
        println!("nothing is measured: run `cargo bench` instead of `cargo test`");
        return Ok(());
    }
    let setting = Setting::new(options.quick).await?;
    let mut report = Report::new(&setting).await?;
    for group in GROUPS {
        if options.only.as_deref().is_none_or(|only| only == group) {
            report.begin(group);
            measure(group, &setting, &mut report).await?;
        }
    }
    setting.clean_up().await;
    report.write()
}

async fn measure(group: &str, setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    match group {
        "uncontended" => uncontended::measure(setting, report).await,
        "attribute" => attribute::measure(setting, report).await,
        "contended" => contended::measure(setting, report).await,
        "processes" => processes::measure(setting, report).await,
        "waiters" => waiters::measure(setting, report).await,
        "held" => held::measure(setting, report).await,
        _ => fencing::measure(setting, report).await,
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => options.bench = true,
            "--quick" => options.quick = true,
            "--only" => options.only = arguments.next(),
            "--worker" => options.worker = arguments.next(),
            other => bail!("unknown argument `{other}`: use `--only <group>` or `--quick`"),
        }
    }
    if let Some(only) = options.only.as_deref().filter(|only| !GROUPS.contains(only)) {
        bail!("there is no group `{only}`: use one of {}", GROUPS.join(", "));
    }
    Ok(options)
}

//! What locking costs, beside what the same work costs without mongolock.
//!
//! `cargo bench -p mongolock-tests --bench locks` prints a table and writes `mongolock-bench.json` into cargo's target
//! directory; `-- --only <group>` runs one group, `-- --quick` makes everything shorter and less exact.
//!
//! A machine's own speed must not decide whether a goal is met, so that each goal is a ratio to a floor: the same
//! commands through the bare driver, or the same work without a lock, measured in turns with mongolock in one run.
//! Nothing here fails for being slow; the table says what was met and what was missed.

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

const GROUPS: [&str; 7] = [
    "uncontended",
    "attribute",
    "contended",
    "processes",
    "waiters",
    "held",
    "fencing",
];

/// What the command line asks for.
#[derive(Default)]
struct Wish {
    only: Option<String>,
    quick: bool,
    /// Set by cargo, but not when `cargo test --all-targets` runs this program among the tests.
    bench: bool,
    /// This is a process of the group `processes`, with this job.
    worker: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let wish = wish(std::env::args().skip(1))?;
    if let Some(job) = &wish.worker {
        return worker::run(job).await;
    }
    if !wish.bench {
        println!("not measured: `cargo bench` does that");
        return Ok(());
    }
    let setting = Setting::new(wish.quick).await?;
    let mut report = Report::new(&setting).await?;
    for group in GROUPS {
        if wish.only.as_deref().is_none_or(|only| only == group) {
            report.begin(group);
            measure(group, &setting, &mut report).await?;
        }
    }
    setting.tidy().await;
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

fn wish(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Wish> {
    let mut wish = Wish::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => wish.bench = true,
            "--quick" => wish.quick = true,
            "--only" => wish.only = arguments.next(),
            "--worker" => wish.worker = arguments.next(),
            other => bail!("`{other}` is not known: use `--only <group>` and `--quick`"),
        }
    }
    if let Some(only) = wish.only.as_deref().filter(|only| !GROUPS.contains(only)) {
        bail!("there is no group `{only}`: use one of {}", GROUPS.join(", "));
    }
    Ok(wish)
}

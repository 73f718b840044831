//! What locking costs, beside what the same work costs without mongolock.
//!
//! `cargo bench -p mongolock-tests --bench locks` prints a table, and writes all figures into `mongolock-bench.json` in cargo's
//! target directory. `-- --list` names the groups, `-- --only <group>` runs one of them, and `-- --quick` makes everything
//! shorter and less exact. The group `soak` runs only if it is named.
//!
//! The speed of the machine must not decide whether a goal is met. Most goals are therefore ratios to a floor: commands
//! through the driver alone, or the same work without a lock. Floor and library are measured in turns within one run, and
//! a ratio is the median of the turns, with the smallest and the greatest beside it. A missed goal does not make the
//! program fail; the table says what was met and what was missed.

mod attribute;
mod awaited;
mod bare;
mod barrier;
mod child;
mod clock;
mod contended;
mod describe;
mod fencing;
mod held;
mod load;
mod memory;
mod order;
mod queue;
mod report;
mod rivals;
mod run;
mod samples;
mod server;
mod setting;
mod soak;
mod uncontended;
mod worker;

use anyhow::bail;

use crate::report::Report;
use crate::setting::Setting;

/// Makes the table of the groups, and the function that runs one of them.
macro_rules! groups {
    ($($name:literal: $measure:path, $what:literal, $time:literal;)*) => {
        /// The groups with what they measure, and how long they take, exactly and with `--quick`.
        const GROUPS: &[(&str, &str, &str)] = &[$(($name, $what, $time)),*];

        async fn measure(group: &str, setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
            match group {
                $($name => $measure(setting, report).await,)*
                _ => bail!("there is no group `{group}`; `--list` names the groups"),
            }
        }
    };
}

groups! {
    "uncontended": uncontended::measure, "acquire and release, beside two floors", "2 min / 15 s";
    "load": load::measure, "many tasks, each with a lock of its own", "11 min / 75 s";
    "attribute": attribute::measure, "the attribute beside `run`, and in memory", "20 s / 5 s";
    "contended": contended::measure, "8 tasks of one process for one lock", "20 s / 5 s";
    "order": order::idle, "the order between processes: fairness and its cost", "11 min / 20 s";
    "order-busy": order::busy, "the same while both processors are busy", "11 min / 20 s";
    "order-mixed": order::mixed, "polling and dead processes among others", "2 min / 30 s";
    "order-far": order::far, "one process of four is far from the server", "2 min / 15 s";
    "order-foreign": order::foreign, "clients that stand in no line among others", "70 s / 10 s";
    "order-many": order::many, "many processes, and many tasks in few processes", "3 min / 40 s";
    "awaited": awaited::measure, "10,000 held names with one waiter each", "2 min / 40 s";
    "held": held::measure, "1,000, 10,000 and 100,000 held locks", "7 min / 2 min";
    "fencing": fencing::measure, "fenced writes and guarded commits", "60 s / 10 s";
    "soak": soak::measure, "kills, stops and late messages; only with `--only soak`", "24 min / 75 s";
}

/// The group that runs only if it is named.
const SOAK: &str = "soak";

/// What the command line asks for.
#[derive(Default)]
struct Arguments {
    only: Option<String>,
    quick: bool,
    list: bool,
    /// Whether cargo has started this program as a benchmark; `cargo test --all-targets` runs it among the tests.
    bench: bool,
    /// The job of this process, if another process of the benchmark has started it.
    worker: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = parse(std::env::args().skip(1))?;
    if let Some(job) = &arguments.worker {
        return worker::run(job).await;
    }
    if arguments.list {
        for (group, what, time) in GROUPS {
            println!("{group:<12} {what:<52} {time}");
        }
        return Ok(());
    }
    if !arguments.bench {
        println!("not measured: `cargo bench` does that");
        return Ok(());
    }
    let setting = Setting::new(arguments.quick).await?;
    let mut report = Report::new(&setting).await?;
    for &(group, _, _) in GROUPS {
        if arguments
            .only
            .as_deref()
            .map_or(group != SOAK, |only| only == group)
        {
            report.begin(group);
            measure(group, &setting, &mut report).await?;
        }
    }
    setting.clean_up().await;
    report.write()
}

fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Arguments> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => arguments.bench = true,
            "--quick" => arguments.quick = true,
            "--list" => arguments.list = true,
            "--only" => arguments.only = words.next(),
            "--worker" => arguments.worker = words.next(),
            other => bail!("unknown argument `{other}`; use `--only <group>`, `--quick` or `--list`"),
        }
    }
    if let Some(only) = &arguments.only
        && !GROUPS.iter().any(|(group, ..)| group == only)
    {
        bail!("there is no group `{only}`; `--list` names the groups");
    }
    Ok(arguments)
}

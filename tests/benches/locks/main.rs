//! What locking costs, beside what the same work costs without mongolock.
//!
//! `cargo bench -p mongolock-tests --bench locks` prints a table, and writes all figures into `mongolock-bench.json` in cargo's
//! target directory, or into the file of `--json`. `-- --list` names the groups, `-- --only <group>` runs one of them, and
//! `-- --quick` makes everything shorter and less exact. The group `soak` runs only if it is named. Providers are those of
//! `LockProvider::connect`, or with `--new` those of `LockProvider::new`.
//!
//! `-- --only <group> --beside <program>` runs the group in turns in this build and in another one, and prints the ratios: some
//! goals compare a figure with that of an earlier commit. `--turns` sets the number of turns.
//!
//! The speed of the machine must not decide whether a goal is met. Most goals are therefore ratios to a floor: commands
//! through the driver alone, or the same work without a lock. Floor and library are measured in turns within one run, and
//! a ratio is the median of the turns, with the smallest and the greatest beside it. A missed goal does not make the
//! program fail; the table says what was met and what was missed.

mod attribute;
mod awaited;
mod bare;
mod beside;
mod child;
mod clock;
mod contended;
mod contest;
mod describe;
mod fencing;
mod held;
mod in_memory;
mod kinds;
mod load;
mod memory;
mod order;
mod overload;
mod queue;
mod report;
mod rivals;
mod run;
mod samples;
mod server;
mod setting;
mod soak;
mod worker;

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::report::Report;
use crate::setting::{Options, Setting};

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
    "load": load::near, "tasks with locks of their own, beside two bare commands", "5 min / 35 s";
    "load-far": load::far, "the same, far from the server", "2 min / 15 s";
    "load-more": load::more, "new names, releases not awaited, several processes", "3 min / 20 s";
    "blocked": load::blocked, "64 tasks, one of whose documents is blocked", "1 min / 15 s";
    "burst": load::burst, "10,000 tasks that begin at once", "30 s / 15 s";
    "memory": in_memory::measure, "time, instructions and memory of calls in memory", "30 s / 15 s";
    "attribute": attribute::measure, "the attribute beside `run`, and in memory", "20 s / 5 s";
    "contended": contended::measure, "8 tasks of one process for one lock", "20 s / 5 s";
    "order": order::idle, "processes for one lock: fairness and hand-overs", "3 min / 25 s";
    "order-busy": order::busy, "the same on a busy server", "3 min / 25 s";
    "order-far": order::far, "one process of four is far from the server", "40 s / 8 s";
    "order-dead": order::dead, "four of eight processes are killed while they wait", "70 s / 12 s";
    "order-polling": order::without_stream, "processes without a change stream", "80 s / 12 s";
    "order-foreign": order::foreign, "clients of .NET among others", "40 s / 8 s";
    "order-many": order::many, "many processes, and many tasks in few processes", "70 s / 30 s";
    "arrivals": order::arrivals, "processes arrive one after the other", "40 s / 12 s";
    "sets": kinds::sets, "processes for sets of locks", "3 min / 25 s";
    "permits": kinds::permits, "processes for the permits of semaphores", "3 min / 25 s";
    "awaited": awaited::measure, "10,000 held names with one waiter each", "4 min / 90 s";
    "released": awaited::at_once, "10,000 awaited names released at once, beside leases", "1 min / 20 s";
    "held": held::measure, "1,000, 10,000 and 100,000 held locks", "7 min / 2 min";
    "overload": overload::measure, "a server that rejects commands", "4 min / 90 s";
    "fencing": fencing::measure, "fenced writes and guarded commits", "60 s / 10 s";
    "soak": soak::measure, "kills, stops and late messages; only with `--only soak`", "24 min / 75 s";
}

/// The group that runs only if it is named.
const SOAK: &str = "soak";

/// What the command line asks for.
#[derive(Default)]
struct Arguments {
    only: Option<String>,
    list: bool,
    options: Options,
    /// Another build of this program, which takes turns with this one.
    beside: Option<PathBuf>,
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
            println!("{group:<13} {what:<55} {time}");
        }
        return Ok(());
    }
    if !arguments.bench {
        println!("not measured: `cargo bench` does that");
        return Ok(());
    }
    if let Some(other) = &arguments.beside {
        let group = arguments
            .only
            .context("`--beside` compares one group: add `--only <group>`")?;
        return beside::run(&group, other, &arguments.options).await;
    }
    let setting = Setting::new(arguments.options.clone()).await?;
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
            "--quick" => arguments.options.quick = true,
            "--new" => arguments.options.is_new = true,
            "--turns" => arguments.options.turns = words.next().map(|turns| turns.parse()).transpose()?,
            "--json" => arguments.options.json = words.next().map(PathBuf::from),
            "--list" => arguments.list = true,
            "--only" => arguments.only = words.next(),
            "--beside" => arguments.beside = words.next().map(PathBuf::from),
            "--worker" => arguments.worker = words.next(),
            other => bail!(
                "unknown argument `{other}`; use `--only <group>`, `--quick`, `--new`, `--turns <number>`, \
                 `--json <file>`, `--beside <program>` or `--list`"
            ),
        }
    }
    if let Some(only) = &arguments.only
        && !GROUPS.iter().any(|(group, ..)| group == only)
    {
        bail!("there is no group `{only}`; `--list` names the groups");
    }
    Ok(arguments)
}

//! What locking costs, beside what the same work costs without mongolock.
//!
//! `cargo bench -p mongolock-tests --bench locks` prints a table, and writes all figures into `mongolock-bench.json` in cargo's
//! target directory, or into the file of `--json`. `-- --list` shows the four groups and their parts, `-- --only <name>` runs a
//! group or a part, and `-- --quick` makes everything shorter and less exact.
//!
//! `-- --only <name> --beside <program>` runs it in turns in this build and in another one, and prints the ratios: some
//! goals compare a figure with that of an earlier commit. `--turns` sets the number of turns.
//!
//! The speed of the machine must not decide whether a goal is met. Most goals are therefore ratios to a floor: commands
//! through the driver alone, or the same work without a lock. Floor and library are measured in turns within one run, and
//! a ratio is the median of the turns, with the smallest and the greatest beside it. A missed goal does not make the
//! program fail; the table says what was met and what was missed.

mod bare;
mod beside;
mod child;
mod contest;
mod in_memory;
mod load;
mod many_names;
mod one_name;
mod overload;
mod queue;
mod report;
mod rivals;
mod run;
mod samples;
mod server;
mod sets;
mod setting;

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::report::Report;
use crate::setting::{Options, Setting};

/// Makes the table of the parts, and the function that measures one of them.
macro_rules! parts {
    ($($group:literal $name:literal: $measure:path, $what:literal, $time:literal;)*) => {
        /// The parts with their groups, what they measure, and how long they take, exactly and with `--quick`.
        const PARTS: &[(&str, &str, &str, &str)] = &[$(($group, $name, $what, $time)),*];

        async fn measure(part: &str, setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
            match part {
                $($name => $measure(setting, report).await,)*
                _ => bail!("there is no part `{part}`"),
            }
        }
    };
}

parts! {
    "load" "load": load::near, "tasks with locks of their own, beside bare commands", "5 min / 35 s";
    "load" "load-far": load::far, "the same, far from the server", "5 min / 35 s";
    "load" "blocked": load::blocked, "64 tasks, one of whose documents is blocked", "1 min / 15 s";
    "load" "memory": in_memory::measure, "a cycle in memory", "30 s / 15 s";
    "one-name" "order": one_name::idle, "processes for one lock: fairness and hand-overs", "3 min / 25 s";
    "one-name" "order-busy": one_name::busy, "the same on a busy server", "3 min / 25 s";
    "one-name" "order-far": one_name::far, "one process of four is far from the server", "40 s / 8 s";
    "one-name" "order-dead": one_name::dead, "four of eight processes are killed while they wait", "70 s / 12 s";
    "one-name" "order-polling": one_name::without_stream, "processes without a change stream", "80 s / 12 s";
    "one-name" "order-foreign": one_name::foreign, "clients of .NET among others", "40 s / 8 s";
    "one-name" "arrivals": one_name::arrivals, "processes arrive one after the other", "40 s / 12 s";
    "sets" "sets": sets::sets, "processes for sets of locks", "3 min / 25 s";
    "sets" "permits": sets::permits, "processes for the permits of semaphores", "3 min / 25 s";
    "many-names" "held": many_names::held, "1,000 and 10,000 held locks", "2 min / 1 min";
    "many-names" "awaited": many_names::awaited, "10,000 held names with one waiter each", "4 min / 90 s";
    "many-names" "released": many_names::released, "10,000 awaited names released at once, beside leases", "1 min / 20 s";
    "many-names" "overload": overload::measure, "a server that rejects commands", "4 min / 90 s";
}

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
        return child::run(job).await;
    }
    if arguments.list {
        for (group, part, what, time) in PARTS {
            println!("{group:<10} {part:<13} {what:<52} {time}");
        }
        return Ok(());
    }
    if !arguments.bench {
        println!("not measured: `cargo bench` does that");
        return Ok(());
    }
    if let Some(other) = &arguments.beside {
        let only = arguments.only.context("`--beside` needs `--only <name>`")?;
        return beside::run(&only, other, &arguments.options).await;
    }
    let setting = Setting::new(arguments.options).await?;
    let mut report = Report::new(&setting).await?;
    for (group, part, ..) in PARTS {
        let only = arguments.only.as_deref();
        if only.is_none_or(|only| [group, part].contains(&&only)) {
            report.begin(part);
            measure(part, &setting, &mut report).await?;
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
            "--turns" => arguments.options.turns = words.next().map(|turns| turns.parse()).transpose()?,
            "--json" => arguments.options.json = words.next().map(PathBuf::from),
            "--list" => arguments.list = true,
            "--only" => arguments.only = words.next(),
            "--beside" => arguments.beside = words.next().map(PathBuf::from),
            "--worker" => arguments.worker = words.next(),
            other => bail!(
                "unknown argument `{other}`; use `--only <name>`, `--quick`, `--turns <number>`, `--json <file>`, \
                 `--beside <program>` or `--list`"
            ),
        }
    }
    if let Some(only) = &arguments.only
        && !PARTS
            .iter()
            .any(|(group, part, ..)| [group, part].contains(&&only.as_str()))
    {
        bail!("there is no `{only}`; `--list` shows the groups and their parts");
    }
    Ok(arguments)
}

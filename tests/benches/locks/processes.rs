//! Contention between processes: four processes with four tasks each acquire the same lock, each for critical sections
//! of 2 ms.
//!
//! The baseline of the total run time is the sum of the sections. The baseline of a hand-over is one command that the
//! driver sends alone, for another name, every 10 ms while the processes compete: a command takes longer when the
//! server is busy. The same command without competition is measured as well. Runs without wake-ups show the effect of
//! the change stream.

use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::bare::Bare;
use crate::contended::Run;
use crate::report::Report;
use crate::samples::{Samples, ratio};
use crate::setting::Setting;
use crate::worker::{Job, Section, from_line};

/// The number of processes that compete for the lock.
const PROCESSES: usize = 4;
/// The number of tasks in each process.
const TASKS: usize = 4;

/// The pause between two baseline commands while the processes compete.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let bare = Bare::new(&setting.database().await?, "processes:bare");
    bare.commands(50).await?;
    let (mut idle, mut loaded) = (Samples::default(), Samples::default());
    let (mut woken, mut polling) = (Vec::new(), Vec::new());
    for round in 0..setting.pick(5, 2) {
        idle.extend(bare.commands(50).await?);
        let competing = compete(setting, format!("processes:woken:{round}"), true);
        let (run, commands) = while_sending(&bare, competing).await?;
        woken.push(run);
        loaded.extend(commands);
        polling.push(compete(setting, format!("processes:polling:{round}"), false).await?);
    }
    report.micros("baseline: one command, idle server, p50", idle.p50());
    report.micros("baseline: one command, competing processes, p50", loaded.p50());
    summary("woken", &woken, &loaded, true, report);
    summary("polling", &polling, &loaded, false, report);
    let between = gaps(&woken, |before, after| before.process != after.process);
    let in_commands = ratio(between.p50(), idle.p50());
    report.figure(
        "woken: hand-over between processes / command, idle server, p50",
        in_commands,
        "x",
    );
    Ok(())
}

/// Runs the competition, and measures baseline commands until it ends.
async fn while_sending(
    bare: &Bare,
    competing: impl Future<Output = anyhow::Result<Run>>,
) -> anyhow::Result<(Run, Samples)> {
    let mut samples = Samples::default();
    let mut competing = pin!(competing);
    loop {
        tokio::select! {
            run = &mut competing => return Ok((run?, samples)),
            () = tokio::time::sleep(PAUSE) => samples.extend(bare.commands(1).await?),
        }
    }
}

/// Reports the runs of one kind: ratios are formed from the sums, and the longest wait is that of the worst run.
fn summary(kind: &str, runs: &[Run], baseline: &Samples, goals: bool, report: &mut Report) {
    let mut figure = |goal: f64, what: &str, value: f64, unit: &str| {
        let name = format!("{kind}: {what}");
        if goals {
            report.at_most(goal, name, value, unit);
        } else {
            report.figure(name, value, unit);
        }
    };
    let sum = |of: fn(&Run) -> Duration| runs.iter().map(of).sum::<Duration>();
    let over_baseline = ratio(sum(Run::time), sum(|run| run.lengths.sum()));
    figure(
        1.5,
        "total run time / sum of critical sections",
        over_baseline,
        "x",
    );
    let gaps = gaps(runs, |before, after| before.process != after.process);
    figure(
        3.0,
        "hand-over between processes / command, p50",
        ratio(gaps.p50(), baseline.p50()),
        "x",
    );
    let unfairness = runs.iter().map(|run| ratio(run.waits.max(), run.waits.mean()));
    figure(
        5.0,
        "longest wait / mean wait",
        unfairness.fold(0.0, f64::max),
        "x",
    );
    let overlaps = runs.iter().map(Run::overlaps).sum();
    figure(0.0, "overlapping critical sections", overlaps, "sections");
    details(kind, runs, &gaps, report);
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn details(kind: &str, runs: &[Run], between: &Samples, report: &mut Report) {
    let within = gaps(runs, |before, after| before.process == after.process);
    let mut waits = Samples::default();
    waits.extend(runs.iter().flat_map(|run| run.waits.clone()));
    for (what, samples) in [
        ("hand-over between processes", between),
        ("hand-over within a process", &within),
        ("wait", &waits),
    ] {
        report.millis(format!("{kind}: {what}, p50"), samples.p50());
        report.millis(format!("{kind}: {what}, p95"), samples.p95());
        report.millis(format!("{kind}: {what}, max"), samples.max());
    }
    let in_a_row = waits.len() as f64 / between.len().max(1) as f64;
    report.figure(
        format!("{kind}: consecutive holds of one process"),
        in_a_row,
        "holds",
    );
}

fn gaps(runs: &[Run], of: impl Fn(&Section, &Section) -> bool) -> Samples {
    let mut gaps = Samples::default();
    gaps.extend(runs.iter().flat_map(|run| run.gaps(&of)));
    gaps
}

async fn compete(setting: &Setting, name: String, wake_up: bool) -> anyhow::Result<Run> {
    let job = Job {
        uri: setting.uri().to_owned(),
        database: setting.database_name().to_owned(),
        name,
        tasks: TASKS,
        sections: setting.pick(100, 40),
        wake_up,
    };
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(&job)?);
    }
    for process in &mut processes {
        process.line().await?;
    }
    for process in &mut processes {
        process.input.write_all(b"go\n").await?;
    }
    let mut sections = Vec::new();
    for (number, mut process) in processes.into_iter().enumerate() {
        sections.extend(from_line(number, &process.line().await?)?);
        process.child.wait().await?;
    }
    Ok(Run::of(sections))
}

/// A child process that runs this program as a worker; it is killed when this value is dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(job: &Job) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--worker", &job.to_argument()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("the pipe was requested")?;
        let output = child.stdout.take().context("the pipe was requested")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        self.output.next_line().await?.context("a worker ended early")
    }
}

//! Four processes with four tasks each that want the same lock, with sections of 2 ms.
//!
//! The floor of the whole is the sum of the sections. That of a hand-over is one bare command; it is sent every 10 ms
//! while the processes compete, by somebody who wants nothing of their lock: a command to a server that is busy takes
//! longer than one of a loop that has it for itself, which is shown as well. With the wake-ups switched off it shows
//! what the change stream is worth.

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

const PROCESSES: usize = 4;
const TASKS: usize = 4;

/// The pause between two bare commands beside the competition.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let bare = Bare::new(&setting.database().await?, "processes:bare");
    bare.commands(50).await?;
    let (mut alone, mut beside) = (Samples::default(), Samples::default());
    let (mut woken, mut polling) = (Vec::new(), Vec::new());
    for round in 0..setting.pick(5, 2) {
        alone.extend(bare.commands(50).await?);
        let competing = compete(setting, format!("processes:woken:{round}"), true);
        let (run, commands) = while_sending(&bare, competing).await?;
        woken.push(run);
        beside.extend(commands);
        polling.push(compete(setting, format!("processes:polling:{round}"), false).await?);
    }
    report.micros("a bare command with nothing else to do, p50", alone.p50());
    report.micros("a bare command beside the competition, p50", beside.p50());
    tell("woken", &woken, &beside, true, report);
    tell("polling", &polling, &beside, false, report);
    let between = gaps(&woken, |before, after| before.process != after.process);
    let in_quiet = ratio(between.p50(), alone.p50());
    report.figure(
        "woken: hand-over, p50, in commands with nothing else to do",
        in_quiet,
        "x",
    );
    Ok(())
}

/// Competes, and says how long bare commands took meanwhile.
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

/// What the runs of one kind say together: each ratio is that of the sums, the longest wait that of the worst run.
fn tell(kind: &str, runs: &[Run], floor: &Samples, goals: bool, report: &mut Report) {
    let mut figure = |goal: f64, what: &str, value: f64, unit: &str| {
        let name = format!("{kind}: {what}");
        if goals {
            report.at_most(goal, name, value, unit);
        } else {
            report.figure(name, value, unit);
        }
    };
    let sum = |of: fn(&Run) -> Duration| runs.iter().map(of).sum::<Duration>();
    let over_ideal = ratio(sum(Run::time), sum(|run| run.lengths.sum()));
    figure(1.5, "total over the sum of the sections", over_ideal, "x");
    let gaps = gaps(runs, |before, after| before.process != after.process);
    figure(
        3.0,
        "hand-over between processes, p50, in bare commands",
        ratio(gaps.p50(), floor.p50()),
        "x",
    );
    let unfairness = runs.iter().map(|run| ratio(run.waits.max(), run.waits.mean()));
    figure(
        5.0,
        "longest wait over the mean",
        unfairness.fold(0.0, f64::max),
        "x",
    );
    let overlaps = runs.iter().map(Run::overlaps).sum();
    figure(0.0, "sections that overlapped", overlaps, "sections");
    details(kind, runs, &gaps, report);
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn details(kind: &str, runs: &[Run], between: &Samples, report: &mut Report) {
    let within = gaps(runs, |before, after| before.process == after.process);
    let mut waits = Samples::default();
    waits.extend(runs.iter().flat_map(|run| run.waits.clone()));
    for (what, samples) in [
        ("hand-over between processes", between),
        ("hand-over within one", &within),
        ("wait", &waits),
    ] {
        report.millis(format!("{kind}: {what}, p50"), samples.p50());
        report.millis(format!("{kind}: {what}, p95"), samples.p95());
        report.millis(format!("{kind}: {what}, max"), samples.max());
    }
    let in_a_row = waits.len() as f64 / between.len().max(1) as f64;
    report.figure(format!("{kind}: holds of a process in a row"), in_a_row, "holds");
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

/// This program again, as a worker; it ends with this value.
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
        let input = child.stdin.take().context("asked for")?;
        let output = child.stdout.take().context("asked for")?;
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

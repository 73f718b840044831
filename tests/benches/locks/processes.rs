//! Processes that compete for one lock, with one to eight tasks each.
//!
//! The floor of the time is the sum of the sections with their real lengths. That of a hand-over between processes is two
//! bare commands, a release and an acquire, which are sent as seldom as a hand-over: a command takes longer after a pause
//! than in a loop. Bare commands are also measured beside the competition, where the server is busy. With wake-ups
//! switched off the group shows what the change stream is worth.

use std::pin::pin;
use std::time::Duration;

use crate::bare::Own;
use crate::plot;
use crate::report::Report;
use crate::run::Run;
use crate::samples::{Samples, Turns, ratio};
use crate::setting::Setting;
use crate::worker::{Competition, Section, compete_among};

/// The processes, and the tasks of each.
const SHAPES: [(usize, usize); 4] = [(2, 1), (4, 2), (4, 4), (4, 8)];

/// The shape that is compared with polling and with bare commands beside it.
const COMPARED: (usize, usize) = (4, 4);

/// The pause between two bare commands.
const PAUSE: Duration = Duration::from_millis(10);

const FLOOR: &str = "processes:floor";

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let bare = Own::new(&setting.database().await?);
    bare.commands(FLOOR, 25, Duration::ZERO).await?;
    let (mut alone, mut beside) = (Samples::default(), Samples::default());
    let mut woken = SHAPES.map(|_| Vec::new());
    let mut polling = Vec::new();
    for turn in 0..setting.turns() {
        for (shape, runs) in SHAPES.into_iter().zip(&mut woken) {
            alone.extend(bare.commands(FLOOR, 15, PAUSE).await?);
            let competing = compete(setting, shape, turn, true);
            if shape == COMPARED {
                let (run, commands) = while_sending(&bare, competing).await?;
                beside.extend(commands);
                runs.push(run);
            } else {
                runs.push(competing.await?);
            }
        }
        polling.push(compete(setting, COMPARED, turn, false).await?);
    }
    report.micros("a bare command after a pause, p50", alone.p50());
    report.micros("a bare command beside 4 x 4, p50", beside.p50());
    for (shape, runs) in SHAPES.into_iter().zip(&woken) {
        speed(shape, "", runs, report);
        fairness(shape, "", runs, true, report);
    }
    hand_over(&woken, &alone, &beside, report);
    speed(COMPARED, ", polling", &polling, report);
    fairness(COMPARED, ", polling", &polling, false, report);
    let last = woken.iter().filter_map(|runs| runs.last());
    let svg = plot::draw(&SHAPES.into_iter().zip(last).collect::<Vec<_>>())?;
    report.file("mongolock-waits.svg", &svg)
}

fn label((processes, tasks): (usize, usize)) -> String {
    format!("{processes} x {tasks}")
}

fn speed(shape: (usize, usize), kind: &str, runs: &[Run], report: &mut Report) {
    let who = format!("{}{kind}", label(shape));
    let lengths: Samples = runs.iter().flat_map(|run| run.lengths.clone()).collect();
    let waits: Samples = runs.iter().flat_map(|run| run.waits.clone()).collect();
    let overlaps: usize = runs.iter().map(Run::overlaps).sum();
    let name = format!("{who}: sections that overlapped");
    report.at_most(0.0, name, overlaps, "sections");
    report.millis(format!("{who}: the length of a section, p50"), lengths.p50());
    let times: Turns = runs.iter().map(Run::over_ideal).collect();
    let name = format!("{who}: time / sum of the sections");
    let goal = (shape == COMPARED && kind.is_empty()).then_some(1.5);
    report.at_most(goal, name, &times, "x");
    let between = gaps(runs, |a, b| a.process != b.process);
    let within = gaps(runs, |a, b| a.process == b.process);
    for (what, samples) in [
        ("hand-over between processes", between),
        ("hand-over within one", within),
        ("wait", waits),
    ] {
        report.millis(format!("{who}: {what}, p50"), samples.p50());
        report.millis(format!("{who}: {what}, p95"), samples.p95());
        report.millis(format!("{who}: {what}, max"), samples.max());
    }
}

fn fairness(shape: (usize, usize), kind: &str, runs: &[Run], has_goal: bool, report: &mut Report) {
    let who = format!("{}{kind}", label(shape));
    let waits: Turns = runs.iter().map(Run::unfairness).collect();
    report.figure(format!("{who}: longest wait / mean wait"), &waits, "x");
    let name = format!("{who}: longest wait / mean wait, worst turn");
    report.at_most(has_goal.then_some(5.0), name, waits.max(), "x");
    let (least, most): (Vec<_>, Vec<_>) = runs.iter().map(|run| run.shares(shape.0)).unzip();
    let name = format!("{who}: least served process / equal share");
    report.figure(name, &least.into_iter().collect(), "x");
    let name = format!("{who}: most served process / equal share");
    report.figure(name, &most.into_iter().collect(), "x");
}

/// What a hand-over between processes costs, in bare commands.
fn hand_over(woken: &[Vec<Run>; 4], alone: &Samples, beside: &Samples, report: &mut Report) {
    let of = |shape| SHAPES.iter().position(|other| *other == shape);
    let runs = |shape| of(shape).map_or(&[][..], |index| &woken[index][..]);
    let idle: Turns = runs(SHAPES[0])
        .iter()
        .map(|run| ratio(run.gaps_between_processes().p50(), alone.p50() * 2))
        .collect();
    report.at_most(
        0.9,
        "2 x 1: hand-over, p50 / two bare commands after a pause",
        &idle,
        "x",
    );
    let busy: Turns = runs(COMPARED)
        .iter()
        .map(|run| ratio(run.gaps_between_processes().p50(), beside.p50()))
        .collect();
    report.at_most(
        3.0,
        "4 x 4: hand-over, p50 / a bare command beside it",
        &busy,
        "x",
    );
}

/// Competes, and measures bare commands at the same time.
async fn while_sending(
    bare: &Own,
    competing: impl Future<Output = anyhow::Result<Run>>,
) -> anyhow::Result<(Run, Samples)> {
    let mut samples = Samples::default();
    let mut competing = pin!(competing);
    loop {
        let pair = bare.commands(FLOOR, 1, PAUSE);
        tokio::select! {
            run = &mut competing => return Ok((run?, samples)),
            pair = pair => samples.extend(pair?),
        }
    }
}

fn gaps(runs: &[Run], fits: impl Fn(&Section, &Section) -> bool) -> Samples {
    runs.iter().flat_map(|run| run.gaps(&fits)).collect()
}

async fn compete(
    setting: &Setting,
    (processes, tasks): (usize, usize),
    turn: usize,
    wake_up: bool,
) -> anyhow::Result<Run> {
    let competition = Competition {
        wants: vec![vec![format!("processes:{processes}:{tasks}:{wake_up}:{turn}")]],
        tasks,
        sections: setting.pick(1_600, 400) / (processes * tasks),
        wake_up,
    };
    compete_among(setting, processes, &competition).await
}

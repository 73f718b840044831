//! Processes that compete for sets of locks, and for the permits of a semaphore.

use std::iter::repeat_n;

use crate::contest::{Contest, Times};
use crate::queue::{Client, Want};
use crate::report::Report;
use crate::run::Run;
use crate::samples::{Turns, number, per_second};
use crate::setting::Setting;

/// What the tasks of the processes want, with the goals.
struct Shape {
    name: &'static str,
    /// The wants of the tasks of each process.
    processes: Vec<Vec<Want>>,
    /// The least holds a second, divided by those of another build.
    holds: Option<f64>,
    /// The longest wait, divided by the mean wait of those who want the same.
    unfairness: Option<f64>,
}

/// What has been measured of a shape.
#[derive(Default)]
struct Measured {
    holds: Turns,
    unfairness: Turns,
    /// The part of the holds that sets have.
    sets: Turns,
    /// The longest wait for a set, in seconds.
    longest_of_sets: Turns,
    /// How often a name was held more often than it can be.
    beyond: usize,
}

fn lock(name: &str) -> Want {
    Want::Lock(name.to_owned())
}

fn set(names: [&str; 2]) -> Want {
    Want::Set(names.map(str::to_owned).into())
}

pub(crate) async fn sets(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let ab = || set(["a", "b"]);
    let shape = Shape {
        name: "sets {a,b}, 4 x 4",
        processes: vec![vec![ab(); 4]; 4],
        holds: Some(0.92),
        unfairness: Some(1.5),
    };
    measure(&shape, setting, report).await?;
    let shape = Shape {
        name: "sets {a,b}, {b,c}, {a,c}, 4 x 3",
        processes: vec![vec![ab(), set(["b", "c"]), set(["a", "c"])]; 4],
        holds: Some(1.5),
        unfairness: Some(2.4),
    };
    measure(&shape, setting, report).await?;
    let shape = Shape {
        name: "{a,b}, a, b, {a,b}, 4 x 4",
        processes: [ab(), lock("a"), lock("b"), ab()]
            .map(|want| vec![want; 4])
            .into(),
        holds: Some(0.92),
        unfairness: Some(1.8),
    };
    let measured = measure(&shape, setting, report).await?;
    let name = format!("{}: the sets' part of the holds", shape.name);
    report.at_least(0.45, name, &measured.sets, "x");
    let shape = Shape {
        name: "one task for {a,b} beside 3 x 4 for b",
        processes: std::iter::once(vec![ab()])
            .chain(repeat_n(vec![lock("b"); 4], 3))
            .collect(),
        holds: None,
        unfairness: None,
    };
    let measured = measure(&shape, setting, report).await?;
    let name = format!("{}: longest wait for the set", shape.name);
    report.at_most(3.0, name, &measured.longest_of_sets, "s");
    Ok(())
}

pub(crate) async fn permits(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    for (name, permits, processes, tasks, holds, unfairness) in [
        ("1 permit, 4 x 4", 1, 4, 4, 1.3, Some(1.5)),
        ("3 permits, 4 x 4", 3, 4, 4, 1.5, Some(3.0)),
        ("3 permits, 8 x 2", 3, 8, 2, 1.4, Some(3.5)),
        ("50 permits, 4 x 50", 50, 4, 50, 1.0, None),
    ] {
        let want = Want::Permit(name.to_owned(), permits);
        let shape = Shape {
            name,
            processes: vec![vec![want; tasks]; processes],
            holds: Some(holds),
            unfairness,
        };
        measure(&shape, setting, report).await?;
    }
    Ok(())
}

async fn measure(shape: &Shape, setting: &Setting, report: &mut Report) -> anyhow::Result<Measured> {
    let times = Times::of(setting);
    let mut measured = Measured::default();
    for _ in 0..setting.turns(3, 1) {
        let wants = shape.processes.iter().cloned();
        let jobs = wants.map(|wants| (setting.access().clone(), times.queueing(Client::Woken, wants)));
        let outcome = Contest::start(jobs).await?.run(times).await?;
        measured.add(shape, &outcome.run, times);
        measured.beyond += beyond(shape, &outcome.all);
    }
    let name = shape.name;
    let what = format!("{name}: holds beyond the limit of a name");
    report.at_most(0.0, what, measured.beyond, "holds");
    report.beside(shape.holds, format!("{name}: holds"), &measured.holds, "/s");
    let what = format!("{name}: longest wait / mean wait");
    report.at_most(shape.unfairness, what, &measured.unfairness, "x");
    Ok(measured)
}

impl Shape {
    /// The wants of all tasks, each once.
    fn wants(&self) -> Vec<&Want> {
        let mut wants = Vec::new();
        for want in self.processes.iter().flatten() {
            if !wants.contains(&want) {
                wants.push(want);
            }
        }
        wants
    }

    /// The sections of the tasks whose wants fit.
    fn part(&self, run: &Run, fits: impl Fn(&Want) -> bool) -> Run {
        run.part(|section| fits(&self.processes[section.process][section.task]))
    }
}

impl Measured {
    fn add(&mut self, shape: &Shape, run: &Run, times: Times) {
        self.holds.add(per_second(run.sections.len(), times.counted));
        let of_kind = |kind: &Want| shape.part(run, |want| want == kind).unfairness();
        let kinds = shape.wants().into_iter().map(of_kind);
        self.unfairness.add(kinds.fold(0.0, f64::max));
        let sets = shape.part(run, |want| matches!(want, Want::Set(_)));
        self.sets
            .add(number(sets.sections.len()) / number(run.sections.len()));
        self.longest_of_sets.add(sets.waits.max().as_secs_f64());
    }
}

/// How often a name was held more often than it can be.
fn beyond(shape: &Shape, all: &Run) -> usize {
    let mut names: Vec<(&String, usize)> = Vec::new();
    for want in shape.wants() {
        names.extend(want.names().iter().map(|name| (name, want.permits())));
    }
    names.sort_unstable();
    names.dedup();
    let of_name = |(name, permits)| {
        shape
            .part(all, |want| want.names().contains(name))
            .beyond(permits)
    };
    names.into_iter().map(of_name).sum()
}

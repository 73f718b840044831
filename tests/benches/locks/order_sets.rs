//! The order between processes that want several locks at once: each has its turns, and no wait is much longer than others.
//!
//! Tasks ask again at once, for a fixed time, as in the group `order`. One lock, in turns with the sets, shows what the
//! machine can do.

use std::time::Duration;

use crate::barrier::{Contest, Outcome};
use crate::queue::{Client, Queueing};
use crate::report::Report;
use crate::samples::{Turns, number, ratio};
use crate::setting::Setting;
use crate::worker::Section;

/// The processes of each scene.
const PROCESSES: usize = 4;

/// One scene: what the tasks of each process want.
struct Scene {
    name: &'static str,
    /// The tasks of each process.
    tasks: usize,
    /// For each process the sets that its tasks want by turns; each letter is a lock.
    wants: [Vec<&'static str>; PROCESSES],
    /// The number of processes that are killed while they stand in front of the others, in line for the first lock. The time
    /// counts from the first section on then.
    dead: Option<usize>,
}

impl Scene {
    fn of(name: &'static str, tasks: usize, wants: [Vec<&'static str>; PROCESSES]) -> Self {
        Self {
            name,
            tasks,
            wants,
            dead: None,
        }
    }

    /// All tasks of all processes want these sets by turns.
    fn all(name: &'static str, tasks: usize, sets: &[&'static str]) -> Self {
        let wants = std::array::from_fn(|process| {
            let mut own = sets.to_vec();
            own.rotate_left(process % sets.len());
            own
        });
        Self::of(name, tasks, wants)
    }
}

/// The number of sections.
fn turns(outcome: &Outcome) -> f64 {
    number(outcome.run.sections.len())
}

fn least_share(outcome: &Outcome) -> f64 {
    let shares = (0..PROCESSES).map(|process| outcome.run.share_of(process));
    shares.fold(1.0, f64::min)
}

/// The longest wait of these processes in milliseconds, not counting the time before the locks were free.
fn longest(outcome: &Outcome, processes: std::ops::Range<usize>) -> f64 {
    let own = outcome.run.sections.iter();
    let own = own.filter(|section| processes.contains(&section.process));
    let wait = |section: &Section| section.begun.saturating_sub(section.asked.max(outcome.opened));
    millis(own.map(wait).max().unwrap_or_default())
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let times = setting.pick(3, 1);
    equal(setting, times, report).await?;
    chain(setting, times, report).await?;
    beside_single_locks(setting, times, report).await?;
    dead(setting, times, report).await
}

/// All want the same two locks, beside all want one lock.
async fn equal(setting: &Setting, times: usize, report: &mut Report) -> anyhow::Result<()> {
    let one = Scene::all("4 x 4, one lock", 4, &["a"]);
    let sets = [
        Scene::all("4 x 4, {a, b}", 4, &["ab"]),
        Scene::all("4 x 4, {a, b} and {b, a}", 4, &["ab", "ba"]),
    ];
    let (mut single, mut several) = (Vec::new(), [Vec::new(), Vec::new()]);
    for turn in 0..times {
        single.push(play(setting, &one, turn).await?);
        for (scene, outcomes) in sets.iter().zip(&mut several) {
            outcomes.push(play(setting, scene, turn).await?);
        }
    }
    describe(&one, &single, None, report);
    for (scene, outcomes) in sets.iter().zip(&several) {
        describe(scene, outcomes, Some((0.2, 2.0)), report);
        let ratios = outcomes.iter().zip(&single);
        let ratios: Turns = ratios
            .map(|(set, one)| turns(set) / turns(one).max(1.0))
            .collect();
        let name = format!("{}: turns / those of one lock", scene.name);
        report.at_least(0.7, name, &ratios, "x");
    }
    Ok(())
}

async fn chain(setting: &Setting, times: usize, report: &mut Report) -> anyhow::Result<()> {
    let scene = Scene::all("4 x 3, {a, b}, {b, c}, {c, a}", 3, &["ab", "bc", "ca"]);
    let outcomes = repeat(setting, &scene, times).await?;
    describe(&scene, &outcomes, Some((0.15, 6.0)), report);
    Ok(())
}

/// Two processes want a set, and two others one of its locks.
async fn beside_single_locks(setting: &Setting, times: usize, report: &mut Report) -> anyhow::Result<()> {
    for (name, single) in [
        ("2 x 2 {a, b} beside 2 x 2 a", "a"),
        ("2 x 2 {a, b} beside 2 x 2 b", "b"),
    ] {
        let wants = [vec!["ab"], vec!["ab"], vec![single], vec![single]];
        let scene = Scene::of(name, 2, wants);
        let outcomes = repeat(setting, &scene, times).await?;
        describe(&scene, &outcomes, None, report);
        let longest: Turns = outcomes.iter().map(|outcome| longest(outcome, 2..4)).collect();
        let name = format!("{name}: longest wait for the single lock");
        report.at_most(110.0, name, &longest, "ms");
    }
    Ok(())
}

/// Four processes are killed while they stand in line before the others.
async fn dead(setting: &Setting, times: usize, report: &mut Report) -> anyhow::Result<()> {
    for dead in [0, 4] {
        let scene = Scene {
            dead: Some(dead),
            ..Scene::all("4 x 4, {a, b} behind dead processes", 4, &["ab"])
        };
        let outcomes = repeat(setting, &scene, times).await?;
        let longest: Turns = outcomes
            .iter()
            .map(|outcome| longest(outcome, 0..PROCESSES))
            .collect();
        let name = format!("{}, of which there are {dead}: longest wait", scene.name);
        report.at_most((dead > 0).then_some(1000.0), name, &longest, "ms");
        let turns: Turns = outcomes.iter().map(turns).collect();
        let name = format!("{}, of which there are {dead}: turns", scene.name);
        report.figure(name, &turns, "turns");
    }
    Ok(())
}

/// The turns, the shares and the waits of a scene, with the goals for the least share and for the longest wait divided by the
/// mean one, if it has some.
fn describe(scene: &Scene, outcomes: &[Outcome], goals: Option<(f64, f64)>, report: &mut Report) {
    let of = |figure: &dyn Fn(&Outcome) -> f64| -> Turns { outcomes.iter().map(figure).collect() };
    // In every scene any two sections have a lock in common.
    let overlaps: usize = outcomes.iter().map(|outcome| outcome.run.overlaps()).sum();
    let name = format!("{}: sections that overlapped", scene.name);
    report.at_most(0.0, name, overlaps, "sections");
    report.figure(format!("{}: turns", scene.name), &of(&turns), "turns");
    for process in 0..PROCESSES {
        let name = format!("{}: share of process {process}", scene.name);
        report.figure(name, &of(&|outcome| outcome.run.share_of(process)), "x");
    }
    let least = of(&least_share);
    let longest = of(&|outcome| ratio(outcome.run.waits.max(), outcome.run.waits.mean()));
    let least_name = format!("{}: least share of a process", scene.name);
    let longest_name = format!("{}: longest wait / mean wait", scene.name);
    let (share, wait) = goals.unzip();
    report.at_least(share, least_name, &least, "x");
    report.at_most(wait, longest_name, &longest, "x");
    let longest = of(&|outcome| millis(outcome.run.waits.max()));
    report.figure(format!("{}: longest wait", scene.name), &longest, "ms");
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

async fn repeat(setting: &Setting, scene: &Scene, times: usize) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for turn in 0..times {
        outcomes.push(play(setting, scene, turn).await?);
    }
    Ok(outcomes)
}

async fn play(setting: &Setting, scene: &Scene, turn: usize) -> anyhow::Result<Outcome> {
    let warm_up = match scene.dead {
        Some(_) => Duration::ZERO,
        None => setting.pick(Duration::from_secs(2), Duration::from_millis(500)),
    };
    let counted = if scene.dead.is_some() {
        // A part of it passes until all stand in line.
        Duration::from_secs(8)
    } else {
        setting.pick(Duration::from_secs(10), Duration::from_secs(3))
    };
    let prefix = format!("order-sets:{}:{:?}:{turn}", scene.name, scene.dead);
    let lock = |letter: char| format!("{prefix}:{letter}");
    let queueing = |sets: &[&str], tasks| Queueing {
        wants: sets.iter().map(|set| set.chars().map(lock).collect()).collect(),
        client: Client::Woken,
        providers: 1,
        tasks,
        warm_up,
        counted,
    };
    let processes = scene.wants.iter();
    let processes = processes.map(|sets| (setting.uri().to_owned(), queueing(sets, scene.tasks)));
    let contest = Contest {
        name: lock('a'),
        processes: processes.collect(),
        dead: scene.dead.map(|dead| vec![queueing(&["ab"], 1); dead]),
    };
    contest.run(setting).await
}

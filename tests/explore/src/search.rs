//! Every order of the steps: a search in depth. Each situation is judged once, and one that comes again on its own path is a run
//! that never ends.

use std::time::Instant;

use foldhash::{HashSet, HashSetExt};

use crate::judge::Longest;
use crate::setup::Setup;
use crate::step::Step;
use crate::world::World;

/// A path that is longer never ends.
const LONGEST_PATH: usize = 3000;

/// What a search or random runs have shown.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The situations of a search.
    pub(crate) states: u64,
    pub(crate) transitions: u64,
    /// The ends of a search, after which nothing happens any more, or the holds of random runs.
    pub(crate) ends: u64,
    pub(crate) longest: Longest,
    pub(crate) seconds: f64,
    /// Whether nothing within the bounds was left out.
    pub(crate) is_whole: bool,
    /// What is wrong, and the steps before it with what each has drawn.
    pub(crate) breach: Option<(&'static str, Vec<(Step, f64)>)>,
}

/// What is on the path of a search.
struct Frame {
    world: World,
    steps: Vec<Step>,
    next: usize,
    fingerprint: u64,
}

impl Frame {
    fn new(setup: &Setup, world: World, fingerprint: u64) -> Self {
        Self {
            steps: world.steps(setup),
            world,
            next: 0,
            fingerprint,
        }
    }
}

/// The number that each decision of a search draws.
const LUCK: f64 = 0.5;

/// Looks at the situations within the bounds, at this number of them at most.
pub(crate) fn search(setup: &Setup, most: usize) -> Found {
    let begun = Instant::now();
    let mut found = Found::default();
    let world = World::new(setup);
    let first = world.fingerprint();
    let (mut seen, mut on_path) = (HashSet::new(), HashSet::new());
    seen.insert(first);
    on_path.insert(first);
    let mut path = vec![Frame::new(setup, world, first)];
    while let Some(frame) = path.last_mut() {
        if seen.len() >= most {
            break;
        }
        let Some(step) = frame.steps.get(frame.next).copied() else {
            on_path.remove(&frame.fingerprint);
            path.pop();
            continue;
        };
        frame.next += 1;
        let mut after = frame.world.clone();
        after.apply(setup, step, LUCK);
        found.transitions += 1;
        let fingerprint = after.fingerprint();
        let mut breach = after.breach();
        if on_path.contains(&fingerprint) {
            breach = breach.or(Some("a situation comes again on its own path"));
        }
        if breach.is_none() && !seen.insert(fingerprint) {
            continue;
        }
        let mut frame = Frame::new(setup, after, fingerprint);
        if frame.steps.is_empty() {
            found.ends += 1;
            frame.world.judge_end();
            breach = breach.or(frame.world.breach());
        }
        if path.len() > LONGEST_PATH {
            breach = breach.or(Some("a run never ends"));
        }
        found.longest = found.longest.max(frame.world.longest());
        if let Some(breach) = breach {
            let steps: Vec<_> = path
                .iter()
                .map(|frame| (frame.steps[frame.next - 1], LUCK))
                .collect();
            found.breach = Some((breach, steps));
            break;
        }
        on_path.insert(fingerprint);
        path.push(frame);
    }
    found.is_whole = path.is_empty();
    found.states = seen.len() as u64;
    found.seconds = begun.elapsed().as_secs_f64();
    found
}

/// The steps of a breach, one line for each.
pub(crate) fn told(setup: &Setup, steps: &[(Step, f64)]) -> Vec<String> {
    let mut world = World::new(setup);
    let mut lines = Vec::new();
    for (step, luck) in steps {
        let message = step.message().map(|index| world.network[index]);
        world.apply(setup, *step, *luck);
        let callers: Vec<String> = world
            .processes
            .iter()
            .map(|process| process.callers.iter().map(ToString::to_string).collect())
            .collect();
        let message = message.map_or(String::new(), |message| {
            format!(" {} {:?}", message.process, message.body)
        });
        lines.push(format!(
            "{:>9.3} s  {step:?}{message}, then the holder is {:?} and callers are {}",
            world.now().as_secs_f64(),
            world.server.holder,
            callers.join(" ")
        ));
    }
    lines
}

//! Every order of the steps: a search in depth. Each situation is judged once, and one that comes again on its own path is a run
//! that never ends.

use std::time::Instant;

use foldhash::{HashSet, HashSetExt};

use crate::setup::Setup;
use crate::step::Step;
use crate::world::World;

/// A path that is longer never ends.
const LONGEST_PATH: usize = 3000;

/// What a search or random runs have shown.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The situations of a search, or the steps of random runs.
    pub(crate) states: u64,
    /// The ends of a search, after which nothing happens any more, or the holds of random runs.
    pub(crate) ends: u64,
    pub(crate) longest_free: i64,
    pub(crate) ghosts: u64,
    pub(crate) seconds: f64,
    /// Whether nothing within the bounds was left out.
    pub(crate) is_whole: bool,
    /// What is wrong, and the steps before it with what each has drawn.
    pub(crate) breach: Option<(&'static str, Vec<(Step, u64)>)>,
}

/// What is on the path of a search.
struct Frame<'a> {
    /// Without it once its last step has been made.
    world: Option<World<'a>>,
    steps: Vec<Step>,
    next: usize,
    fingerprint: u64,
}

impl Found {
    /// The steps that are possible; none at an end, which is judged.
    fn steps_after(&mut self, world: &mut World<'_>) -> Vec<Step> {
        let steps = if world.is_over() {
            Vec::new()
        } else {
            world.steps()
        };
        if steps.is_empty() {
            self.ends += 1;
            world.judge_end();
            self.ghosts += world.judge.ghosts;
        }
        steps
    }

    /// Notes what a run has shown so far, and what is wrong.
    pub(crate) fn note(&mut self, setup: &Setup, world: &World<'_>) -> Option<&'static str> {
        self.longest_free = self.longest_free.max(world.judge.longest_free);
        let has_too_many = self.ghosts > 0 && !setup.has_ghosts;
        let ghost = has_too_many.then_some("a claim without a user has the lock at the end");
        world.judge.breach.or(ghost)
    }
}

impl<'a> Frame<'a> {
    /// The situation for the next step; after the last one it is not needed here any more.
    fn next_world(&mut self) -> Option<World<'a>> {
        self.next += 1;
        let is_last = self.next == self.steps.len();
        if is_last {
            self.world.take()
        } else {
            self.world.clone()
        }
    }
}

/// Looks at the situations within the bounds, at this number of them at most.
pub(crate) fn search(setup: &Setup, most: usize) -> Found {
    let begun = Instant::now();
    let mut found = Found::default();
    let mut world = World::new(setup);
    let first = world.fingerprint();
    let (mut seen, mut on_path) = (HashSet::new(), HashSet::new());
    seen.insert(first);
    on_path.insert(first);
    let mut path = vec![Frame {
        steps: world.steps(),
        world: Some(world),
        next: 0,
        fingerprint: first,
    }];
    while let Some(frame) = path.last_mut() {
        if seen.len() >= most {
            break;
        }
        let Some(step) = frame.steps.get(frame.next).copied() else {
            on_path.remove(&frame.fingerprint);
            path.pop();
            continue;
        };
        let Some(mut after) = frame.next_world() else {
            break;
        };
        after.apply(step);
        let fingerprint = after.fingerprint();
        if on_path.contains(&fingerprint) {
            after.judge.fails("a situation comes again on its own path");
        }
        if after.judge.breach.is_none() && !seen.insert(fingerprint) {
            found.note(setup, &after);
            continue;
        }
        if path.len() > LONGEST_PATH {
            after.judge.fails("a run never ends");
        }
        let steps = found.steps_after(&mut after);
        if let Some(breach) = found.note(setup, &after) {
            let steps = path.iter().map(|frame| (frame.steps[frame.next - 1], 0));
            found.breach = Some((breach, steps.collect()));
            break;
        }
        let frame = Frame {
            world: Some(after),
            steps,
            next: 0,
            fingerprint,
        };
        on_path.insert(fingerprint);
        path.push(frame);
    }
    found.is_whole = path.is_empty();
    found.states = seen.len() as u64;
    found.seconds = begun.elapsed().as_secs_f64();
    found
}

/// The steps of a breach, one line for each.
pub(crate) fn told(setup: &Setup, steps: &[(Step, u64)]) -> Vec<String> {
    let mut world = World::new(setup);
    let mut lines = Vec::new();
    for (step, luck) in steps {
        let message = match step {
            Step::Deliver(index) | Step::Lose(index) | Step::Fail(index, ..) => {
                let message = &world.network[*index];
                format!(" p{} {:?}", message.process, message.body)
            }
            Step::Hear(number) => format!(" {:?}", world.processes[*number].events.front()),
            _ => String::new(),
        };
        world.chance = *luck;
        world.apply(*step);
        let documents = world.documents.iter().map(|(name, own)| {
            let left = own.expires_at.date().map_or(0, |end| end - world.ms());
            format!("{name} {:?} {:?} {left} ms", own.lock_id, own.token)
        });
        let documents: Vec<String> = documents.collect();
        let (seconds, documents) = (world.seconds(), documents.join(", "));
        lines.push(format!("{seconds:>9.3} s  {step:?}{message} -> {documents}"));
    }
    lines
}

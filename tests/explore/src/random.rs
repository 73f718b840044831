//! Random orders of the steps, with many faults and callers that come again.

use std::time::Instant;

use crate::search::Found;
use crate::setup::Setup;
use crate::step::Step;
use crate::world::World;

/// A fault is drawn again this many times out of so many.
const RARE: usize = 20;

/// Time passes on the way of messages this seldom.
const SLOW: usize = 10;

/// A caller comes again this seldom: a single try often ends at once.
const SELDOM: usize = 4;

/// The numbers of one seed.
struct Numbers(u64);

impl Numbers {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        let number = usize::try_from(self.bits() >> 33).unwrap_or_default();
        number % most.max(1)
    }
}

/// Runs each of these seeds for this number of steps, until one of them shows a breach.
pub(crate) fn runs(setup: &Setup, seeds: u64, length: usize) -> Found {
    let begun = Instant::now();
    let mut found = Found::default();
    for seed in 0..seeds {
        let mut numbers = Numbers::of(seed);
        let mut world = World::new(setup);
        let mut path = Vec::new();
        let mut breach = None;
        for _ in 0..length {
            let steps = world.steps();
            if steps.is_empty() {
                world.judge_end();
            } else {
                let step = drawn(&mut numbers, &world, &steps);
                world.chance = numbers.bits();
                found.ends += u64::from(matches!(step, Step::End(..)));
                path.push((step, world.chance));
                world.apply(step);
                found.states += 1;
            }
            breach = found.note(setup, &world);
            if breach.is_some() || steps.is_empty() {
                break;
            }
        }
        if let Some(breach) = breach {
            found.breach = Some((breach, path));
            break;
        }
    }
    found.seconds = begun.elapsed().as_secs_f64();
    found
}

fn drawn(numbers: &mut Numbers, world: &World<'_>, steps: &[Step]) -> Step {
    let mut draw = || steps[numbers.below(steps.len())];
    let step = draw();
    let is_slow = step == Step::TimePasses && !world.is_quiet();
    let again = draw();
    let is_rare = (step.is_fault() && numbers.below(RARE) > 0)
        || (is_slow && numbers.below(SLOW) > 0)
        || (matches!(step, Step::Call(..)) && numbers.below(SELDOM) > 0);
    if is_rare { again } else { step }
}

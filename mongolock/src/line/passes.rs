use std::collections::HashMap;

use super::Place;

/// The turns that the first in line may let pass before it is not counted any more. A slow process lets some pass on a
/// busy machine; a dead one costs each turn a moment.
const PASSES: u32 = 6;

/// The least number of turns that one may let pass, however many are not counted already. With one, slow living processes
/// would be left out.
const PASSES_MIN: u32 = 2;

/// The turns that those in front of a line have let pass, each at the place that it had then. Who has let too many pass is
/// absent, which means dead or very slow, until it takes another place.
#[derive(Debug, Default)]
pub(super) struct Passes {
    turns: HashMap<Place, Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    passed: u32,
    is_absent: bool,
}

impl Passes {
    /// Forgets the places that are not in the line any more.
    pub(super) fn retain(&mut self, is_in_line: impl Fn(&Place) -> bool) {
        self.turns.retain(|place, _| is_in_line(place));
    }

    /// Notes that the first in line has let a turn pass.
    pub(super) fn add(&mut self, first: &Place) {
        self.turns.entry(first.clone()).or_default().passed += 1;
    }

    /// Decides who is absent. The more are absent already, the sooner another one is: processes die together.
    pub(super) fn judge(&mut self) {
        let absent = self.turns.values().filter(|turns| turns.is_absent).count();
        let allowed = allowed(absent);
        for turns in self.turns.values_mut() {
            turns.is_absent |= turns.passed >= allowed;
        }
    }

    pub(super) fn is_absent(&self, place: &Place) -> bool {
        self.turns.get(place).is_some_and(|turns| turns.is_absent)
    }
}

/// The number of turns that one may let pass while so many are absent.
fn allowed(absent: usize) -> u32 {
    let halvings = u32::try_from(absent).unwrap_or(u32::MAX);
    PASSES.checked_shr(halvings).unwrap_or(0).max(PASSES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_is_halved_for_each_that_is_absent() {
        let allowed: Vec<u32> = [0, 1, 2, 3, 31, 32, 1000].map(allowed).into();
        assert_eq!(allowed, [6, 3, 2, 2, 2, 2, 2]);
    }
}

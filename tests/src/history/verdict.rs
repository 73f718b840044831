//! The judgement of a history.

#[cfg(test)]
mod tests;

use std::fmt::{self, Display};
use std::time::Duration;

use super::hold::End;
use super::{Event, History, Hold, Outcome};

/// What a history says about its lock.
///
/// Four of its lists must be empty, whatever has happened to the processes: [`breaches`](Self::breaches). The others say what
/// a lock cannot prevent, and how often it has happened.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Verdict {
    /// Two holders at the same time, of whom the earlier one was not stopped when the later one began.
    pub overlaps: Vec<(Hold, Hold)>,
    /// A hold, and a later one whose token is not greater.
    pub falling_tokens: Vec<(Hold, Hold)>,
    /// Releases that were confirmed although another holder had begun before the section ended.
    pub false_releases: Vec<(Hold, Hold)>,
    /// Calls of processes that were not killed, which have neither succeeded nor failed.
    pub unanswered: Vec<Event>,
    /// The number of holds.
    pub holds: usize,
    /// The number of holds whose holders were told that they have lost the lock.
    pub lost: usize,
    /// For how long sections went on while another process held the lock: it began while their holders were stopped, and they
    /// have found their loss afterwards.
    pub late_sections: Vec<Duration>,
}

impl Verdict {
    pub(super) fn of(history: &History) -> Self {
        let (holds, unanswered) = super::hold::holds(&history.events());
        let (overlaps, late_sections) = overlaps(&holds);
        Self {
            overlaps,
            falling_tokens: falling_tokens(&holds),
            false_releases: false_releases(&holds),
            unanswered,
            holds: holds.len(),
            lost: holds.iter().filter(|hold| hold.is_lost()).count(),
            late_sections,
        }
    }

    /// What must not be, one line each.
    pub fn breaches(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        breaches.extend(pairs("two holders at the same time", &self.overlaps));
        breaches.extend(pairs("a token that does not rise", &self.falling_tokens));
        let late = pairs("a release after a takeover was confirmed", &self.false_releases);
        breaches.extend(late);
        let unanswered = self.unanswered.iter();
        breaches.extend(unanswered.map(|call| format!("a call was neither served nor refused: {call:?}")));
        breaches
    }

    /// Asserts that there is no breach, and prints the figures.
    #[track_caller]
    pub fn assert_sound(&self) {
        println!("{self}");
        let breaches = self.breaches();
        assert!(breaches.is_empty(), "{}", breaches.join("\n"));
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "history: {} holds, {} lost, {} breaches; {} sections beside a later holder (longest {:?})",
            self.holds,
            self.lost,
            self.breaches().len(),
            self.late_sections.len(),
            self.late_sections.iter().max(),
        )
    }
}

fn pairs<T: fmt::Debug>(what: &str, pairs: &[(T, T)]) -> impl Iterator<Item = String> {
    pairs
        .iter()
        .map(move |(earlier, later)| format!("{what}: {earlier:?}, then {later:?}"))
}

/// The overlaps that must not be, and those that no lock can prevent. Each hold is compared with all earlier ones that
/// have not ended, because a holder that is stopped for long would otherwise hide the others.
fn overlaps(holds: &[Hold]) -> (Vec<(Hold, Hold)>, Vec<Duration>) {
    let (mut wrong, mut late) = (Vec::new(), Vec::new());
    let mut open: Vec<&Hold> = Vec::new();
    for hold in holds {
        open.retain(|earlier| earlier.ended > hold.begun);
        for earlier in &open {
            if earlier.end == End::Lost && earlier.was_stopped_at_the_beginning_of(hold) {
                late.push(earlier.ended.min(hold.ended).saturating_sub(hold.begun));
            } else {
                wrong.push(((*earlier).clone(), hold.clone()));
            }
        }
        open.push(hold);
    }
    (wrong, late)
}

/// Tokens are compared with the greatest one before, so that one that falls for long is seen each time.
fn falling_tokens(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut falling = Vec::new();
    let mut greatest: Option<&Hold> = None;
    for hold in holds.iter().filter(|hold| hold.token.is_some()) {
        match greatest {
            Some(before) if before.token >= hold.token => falling.push((before.clone(), hold.clone())),
            _ => greatest = Some(hold),
        }
    }
    falling
}

fn false_releases(holds: &[Hold]) -> Vec<(Hold, Hold)> {
    let mut wrong = Vec::new();
    for (index, hold) in holds.iter().enumerate() {
        if hold.release != Some(Outcome::Ok) {
            continue;
        }
        let later = holds[index + 1..].iter();
        let mut taken = later.take_while(|later| later.begun < hold.ended);
        wrong.extend(taken.next().map(|taken| (hold.clone(), taken.clone())));
    }
    wrong
}

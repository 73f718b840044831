//! What the sections of the soak say, beside its faults.

use std::time::Duration;

use mongolock_tests::{History, Hold, Verdict};

use super::place::{Fault, Lives};

/// The time in which a command takes effect that was sent before a fault.
const AT_ONCE: Duration = Duration::from_millis(100);

/// All that was seen.
pub(crate) struct Seen {
    /// The processes of ours: the number of each, and when it began and ended.
    ours: Vec<(usize, Duration, Duration)>,
    pub(crate) history: History,
    /// What the history says of the lock.
    pub(crate) verdict: Verdict,
    /// The sections of the history.
    pub(crate) holds: Vec<Hold>,
    pub(crate) faults: Vec<Fault>,
}

/// A time in which the lock was free, and the part of it that no fault explains.
#[derive(Debug)]
pub(crate) struct Gap {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) unexplained: Duration,
}

impl Seen {
    /// Of each place, whether its processes are ours, and what they have done; and the faults of the server.
    pub(crate) fn new(places: Vec<(bool, Lives)>, mut faults: Vec<Fault>) -> Self {
        let (mut ours, mut history) = (Vec::new(), History::default());
        for (is_ours, lives) in places {
            faults.extend(lives.faults);
            ours.extend(lives.all.into_iter().filter(|_| is_ours));
            lives
                .history
                .events()
                .into_iter()
                .for_each(|event| history.add(event));
        }
        Self {
            ours,
            verdict: history.judge(),
            holds: history.holds(),
            history,
            faults,
        }
    }

    /// The times in which nobody held the lock.
    pub(crate) fn free(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut ended: Option<Duration> = None;
        for hold in &self.holds {
            let to = hold.begun;
            if let Some(from) = ended.filter(|from| *from < to) {
                let unexplained = to.saturating_sub(from).saturating_sub(self.explained(from, to));
                gaps.push(Gap {
                    from,
                    to,
                    unexplained,
                });
            }
            ended = ended.max(Some(hold.held_until()));
        }
        gaps
    }

    /// The longest time that a process of ours was without a turn.
    pub(crate) fn without_a_turn(&self) -> Duration {
        let mut longest = Duration::ZERO;
        for (number, begun, ended) in &self.ours {
            let own = self.holds.iter().filter(|hold| hold.process == *number);
            let mut from = *begun;
            for to in own.map(|hold| hold.begun).chain([*ended]) {
                longest = longest.max(to.saturating_sub(from));
                from = from.max(to);
            }
        }
        longest
    }

    /// The part of a time in which the lock was free that is explained by faults, which may overlap.
    fn explained(&self, from: Duration, to: Duration) -> Duration {
        let applies = |fault: &&Fault| !fault.explains_once() || from <= fault.begun + AT_ONCE;
        let faults = self.faults.iter().filter(applies);
        let mut spans: Vec<_> = faults
            .map(|fault| (fault.begun.max(from), fault.explains_until().min(to)))
            .filter(|(begun, ended)| begun < ended)
            .collect();
        spans.sort_unstable();
        let (mut explained, mut until) = (Duration::ZERO, from);
        for (begun, ended) in spans {
            explained += ended.saturating_sub(begun.max(until));
            until = until.max(ended);
        }
        explained
    }
}

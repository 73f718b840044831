//! Who held the lock when, from what the processes have printed.

use std::collections::HashMap;
use std::time::Duration;

use super::fleet::{Entry, Life};
use super::job::Record;

/// How a section has ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum End {
    /// Its process still held the lock at its end.
    Held,
    /// Its process has found that the lock was lost.
    Lost,
    /// Its process was killed.
    Killed,
}

/// One section.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) life: usize,
    pub(crate) place: usize,
    pub(crate) asked: Duration,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
    pub(crate) token: i64,
    /// When the lease ends that was known at the beginning.
    pub(crate) lease_ends: Duration,
    pub(crate) end: End,
}

impl Hold {
    /// Until when the lock was held: the lease of a stopped holder can end before its section.
    pub(crate) fn held_until(&self) -> Duration {
        match self.end {
            End::Lost => self.ended.min(self.lease_ends.max(self.begun)),
            End::Held | End::Killed => self.ended,
        }
    }
}

/// All sections in the order of their beginnings, and the errors with the numbers of their occurrences.
pub(crate) fn holds(lives: &[Life], entries: Vec<Entry>) -> (Vec<Hold>, Vec<(String, usize)>) {
    let (mut open, mut holds) = (HashMap::<(usize, usize), Hold>::new(), Vec::new());
    let mut errors = HashMap::<String, usize>::new();
    for Entry { life, record } in entries {
        match record {
            Record::Begun {
                task,
                asked,
                at,
                token,
                remaining,
            } => {
                let hold = Hold {
                    life,
                    place: lives[life].place,
                    asked,
                    begun: at,
                    ended: at,
                    token,
                    lease_ends: at + remaining,
                    end: End::Killed,
                };
                open.insert((life, task), hold);
            }
            Record::Ended { task, at, is_lost } => {
                let end = if is_lost { End::Lost } else { End::Held };
                let ended = open.remove(&(life, task));
                holds.extend(ended.map(|hold| Hold {
                    ended: at,
                    end,
                    ..hold
                }));
            }
            Record::Failed { error } => *errors.entry(error).or_default() += 1,
        }
    }
    // A process that was killed in a section held the lock until then.
    holds.extend(open.into_values().map(|hold| Hold {
        ended: lives[hold.life].ended.unwrap_or(hold.begun).max(hold.begun),
        ..hold
    }));
    holds.sort_unstable_by_key(|hold| hold.begun);
    let mut errors: Vec<_> = errors.into_iter().collect();
    errors.sort_unstable_by_key(|(_, times)| std::cmp::Reverse(*times));
    (holds, errors)
}

//! One competition: its sections in their order, and what they say about speed and fairness.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::samples::{Samples, millis, number};

/// One hold: the times at which it was requested, begun and ended, by the clock of the machine.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Section {
    /// The number of the process.
    pub(crate) process: usize,
    /// The number of the task in its process.
    pub(crate) task: usize,
    pub(crate) asked: Duration,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

impl Section {
    pub(crate) fn wait(&self) -> Duration {
        self.begun.saturating_sub(self.asked)
    }
}

/// The sections of a competition, in their order.
pub(crate) struct Run {
    pub(crate) sections: Vec<Section>,
    /// The waits in milliseconds.
    pub(crate) waits: Samples,
}

impl Run {
    pub(crate) fn of(mut sections: Vec<Section>) -> Self {
        sections.sort_unstable_by_key(|section| section.begun);
        let waits = sections.iter().map(|section| millis(section.wait())).collect();
        Self { sections, waits }
    }

    /// The sections that fit.
    pub(crate) fn part(&self, fits: impl Fn(&Section) -> bool) -> Self {
        let all = self.sections.iter();
        Self::of(all.filter(|section| fits(section)).copied().collect())
    }

    /// The sections of this process.
    pub(crate) fn of_process(&self, process: usize) -> Self {
        self.part(|section| section.process == process)
    }

    /// The time from the first request to the end of the last section, divided by the sum of the sections' real lengths.
    pub(crate) fn over_ideal(&self) -> f64 {
        let sections = || self.sections.iter();
        let asked = sections().map(|section| section.asked).min();
        let ended = sections().map(|section| section.ended).max();
        let whole = ended.zip(asked).map(|(ended, asked)| ended.saturating_sub(asked));
        let length = |section: &Section| section.ended.saturating_sub(section.begun);
        let lengths = sections().map(length).sum::<Duration>();
        whole.unwrap_or_default().as_secs_f64() / lengths.as_secs_f64()
    }

    /// The times in milliseconds between the end of a section and the beginning of the next one in another process.
    pub(crate) fn hand_overs(&self) -> Samples {
        let neighbours = self.sections.windows(2);
        let fits = |pair: &&[Section]| pair[0].process != pair[1].process;
        let gap = |pair: &[Section]| millis(pair[1].begun.saturating_sub(pair[0].ended));
        neighbours.filter(fits).map(gap).collect()
    }

    /// How often a section has begun while so many others were held already.
    pub(crate) fn beyond(&self, permits: usize) -> usize {
        let mut held: Vec<Duration> = Vec::new();
        let is_beyond = |section: &&Section| {
            held.retain(|ends| *ends > section.begun);
            held.push(section.ended);
            held.len() > permits
        };
        self.sections.iter().filter(is_beyond).count()
    }

    /// The longest wait divided by the mean wait.
    pub(crate) fn unfairness(&self) -> f64 {
        self.waits.max() / self.waits.mean()
    }

    /// The part of the sections that this process had.
    pub(crate) fn share_of(&self, process: usize) -> f64 {
        let own = self.sections.iter().filter(|section| section.process == process);
        number(own.count()) / number(self.sections.len().max(1))
    }
}

//! One competition: its sections in their order, and what they say about speed and fairness.

use std::time::Duration;

use crate::samples::{Samples, number, ratio};
use crate::worker::Section;

/// The sections of a competition, in their order.
pub(crate) struct Run {
    pub(crate) sections: Vec<Section>,
    /// The real lengths of the sections.
    pub(crate) lengths: Samples,
    pub(crate) waits: Samples,
}

impl Run {
    pub(crate) fn of(mut sections: Vec<Section>) -> Self {
        sections.sort_unstable_by_key(|section| section.begun);
        let length = |section: &Section| section.ended.saturating_sub(section.begun);
        Self {
            lengths: sections.iter().map(length).collect(),
            waits: sections.iter().map(Section::wait).collect(),
            sections,
        }
    }

    /// The sections that fit.
    pub(crate) fn part(&self, fits: impl Fn(&Section) -> bool) -> Self {
        Self::of(
            self.sections
                .iter()
                .filter(|section| fits(section))
                .copied()
                .collect(),
        )
    }

    /// The sections of this process.
    pub(crate) fn of_process(&self, process: usize) -> Self {
        self.part(|section| section.process == process)
    }

    /// The time from the first request to the end of the last section, divided by the sum of the sections.
    pub(crate) fn over_ideal(&self) -> f64 {
        let asked = self.sections.iter().map(|section| section.asked).min();
        let ended = self.sections.iter().map(|section| section.ended).max();
        let asked = asked.unwrap_or_default();
        ratio(
            ended.unwrap_or_default().saturating_sub(asked),
            self.lengths.sum(),
        )
    }

    /// The times between the end of a section and the beginning of the next one, for the neighbours that fit.
    pub(crate) fn gaps(&self, fits: impl Fn(&Section, &Section) -> bool) -> Samples {
        let neighbours = self.sections.windows(2).filter(|pair| fits(&pair[0], &pair[1]));
        let gaps = neighbours.map(|pair| pair[1].begun.saturating_sub(pair[0].ended));
        gaps.collect()
    }

    pub(crate) fn gaps_between_processes(&self) -> Samples {
        self.gaps(|before, after| before.process != after.process)
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
        ratio(self.waits.max(), self.waits.mean())
    }

    /// The part of the sections that this process had.
    pub(crate) fn share_of(&self, process: usize) -> f64 {
        let own = self.sections.iter().filter(|section| section.process == process);
        number(own.count()) / number(self.sections.len().max(1))
    }

    /// The turns of processes, each of them the sections of one process in a row.
    pub(crate) fn count_of_turns(&self) -> usize {
        let changes = |pair: &&[Section]| pair[0].process != pair[1].process;
        self.sections.windows(2).filter(changes).count()
    }
}

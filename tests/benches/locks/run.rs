//! One competition for one lock: its sections in their order, and what they say about speed and fairness.

use std::time::Duration;

use crate::samples::{Samples, number, ratio};
use crate::worker::Section;

/// The sections of one lock, in their order.
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

    /// How often two holders had the lock at the same time.
    pub(crate) fn overlaps(&self) -> usize {
        let overlapping = |pair: &&[Section]| pair[1].begun < pair[0].ended;
        self.sections.windows(2).filter(overlapping).count()
    }

    /// The longest wait divided by the mean wait.
    pub(crate) fn unfairness(&self) -> f64 {
        ratio(self.waits.max(), self.waits.mean())
    }

    /// The part of the sections that this process had.
    pub(crate) fn share_of(&self, process: usize) -> f64 {
        number(self.sections_of(process).count()) / number(self.sections.len().max(1))
    }

    /// The longest wait of this process.
    pub(crate) fn longest_of(&self, process: usize) -> Duration {
        let waits = self.sections_of(process).map(Section::wait);
        waits.max().unwrap_or_default()
    }

    /// The sections of this process for each second.
    pub(crate) fn rate_of(&self, process: usize) -> f64 {
        let (first, last) = self.begins();
        number(self.sections_of(process).count()) / last.saturating_sub(first).as_secs_f64()
    }

    /// When the first section has begun, and the last one.
    pub(crate) fn begins(&self) -> (Duration, Duration) {
        let begun = |section: Option<&Section>| section.map(|section| section.begun).unwrap_or_default();
        (begun(self.sections.first()), begun(self.sections.last()))
    }

    fn sections_of(&self, process: usize) -> impl Iterator<Item = &Section> {
        self.sections
            .iter()
            .filter(move |section| section.process == process)
    }

    /// The turns of processes, each of them the sections of one process in a row: when they begin.
    fn turn_begins(&self) -> Vec<Duration> {
        let changes = self
            .sections
            .windows(2)
            .filter(|pair| pair[0].process != pair[1].process);
        changes.map(|pair| pair[1].begun).collect()
    }

    pub(crate) fn count_of_turns(&self) -> usize {
        self.turn_begins().len()
    }

    /// The time that these turns take, counted from 1; `None` if there are fewer turns.
    pub(crate) fn turns(&self, of: std::ops::RangeInclusive<usize>) -> Option<Duration> {
        let begins = self.turn_begins();
        let begin = |turn: usize| begins.get(turn - 1).copied();
        Some(begin(of.end() + 1)?.saturating_sub(begin(*of.start())?))
    }

    /// The sections of the least served process, divided by an equal share. Only the time counts in which all processes compete:
    /// every process does the same number of sections in the end.
    pub(crate) fn least_share(&self, processes: usize) -> f64 {
        let last = |process| {
            let own = self.sections_of(process);
            own.map(|section| section.begun).max().unwrap_or_default()
        };
        let end: Duration = (0..processes).map(last).min().unwrap_or_default();
        let counted = || self.sections.iter().filter(|section| section.begun <= end);
        let of = |process| counted().filter(|section| section.process == process).count();
        let fewest = (0..processes).map(of).min().unwrap_or_default();
        number(fewest) * number(processes) / number(counted().count())
    }
}

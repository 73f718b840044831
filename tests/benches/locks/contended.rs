//! Contention inside one process: eight tasks acquire the same lock, each for critical sections of 2 ms.
//!
//! The baseline is the sum of the measured sections, which is the total run time if handing the lock over costs
//! nothing.

use std::time::Duration;

use mongolock::LockProvider;

use crate::report::{Report, micros};
use crate::samples::{Samples, ratio};
use crate::setting::Setting;
use crate::worker::{Section, compete};

/// The number of tasks that compete for the lock.
const TASKS: usize = 8;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = LockProvider::new(&setting.database().await?);
    provider.lock("contended").acquire().await?.release().await?;
    let sections = compete(&provider, "contended", TASKS, setting.pick(200, 50)).await?;
    provider.shutdown().await;
    let run = Run::of(sections);
    report.figure(
        "8 tasks: overlapping critical sections",
        run.overlaps(),
        "sections",
    );
    report.micros("8 tasks: critical section, p50", run.lengths.p50());
    report.at_most(
        1.10,
        "8 tasks: total run time / sum of critical sections",
        run.over_baseline(),
        "x",
    );
    let gaps = run.gaps(|_, _| true);
    report.at_most(50.0, "8 tasks: hand-over, p50", micros(gaps.p50()), "us");
    report.micros("8 tasks: hand-over, p95", gaps.p95());
    report.micros("8 tasks: hand-over, max", gaps.max());
    Ok(())
}

/// The critical sections under one lock, in their order.
pub(crate) struct Run {
    sections: Vec<Section>,
    pub(crate) lengths: Samples,
    pub(crate) waits: Samples,
}

impl Run {
    pub(crate) fn of(mut sections: Vec<Section>) -> Self {
        sections.sort_unstable_by_key(|section| section.begun);
        let (mut lengths, mut waits) = (Samples::default(), Samples::default());
        for section in &sections {
            lengths.add(section.ended.saturating_sub(section.begun));
            waits.add(section.begun.saturating_sub(section.requested));
        }
        Self {
            sections,
            lengths,
            waits,
        }
    }

    /// The ratio of the total run time to the sum of the sections.
    pub(crate) fn over_baseline(&self) -> f64 {
        ratio(self.time(), self.lengths.sum())
    }

    /// The total run time, from the first request to the end of the last section.
    pub(crate) fn time(&self) -> Duration {
        let requested = self.sections.iter().map(|section| section.requested).min();
        let ended = self.sections.iter().map(|section| section.ended).max();
        ended
            .unwrap_or_default()
            .saturating_sub(requested.unwrap_or_default())
    }

    /// The times from the end of a section to the begin of the next one, for the pairs that meet the condition.
    pub(crate) fn gaps(&self, of: impl Fn(&Section, &Section) -> bool) -> Samples {
        let mut gaps = Samples::default();
        let pairs = self.sections.windows(2).filter(|pair| of(&pair[0], &pair[1]));
        gaps.extend(pairs.map(|pair| pair[1].begun.saturating_sub(pair[0].ended)));
        gaps
    }

    /// The number of sections that began before the section before them had ended.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn overlaps(&self) -> f64 {
        let overlapping = |pair: &&[Section]| pair[1].begun < pair[0].ended;
        self.sections.windows(2).filter(overlapping).count() as f64
    }
}

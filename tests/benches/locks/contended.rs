//! Eight tasks of one process that compete for one lock.
//!
//! The floor is the sum of the sections with their real lengths: the time that the work takes if a hand-over costs
//! nothing.

use mongolock::LockProvider;
use tokio::task::JoinSet;

use crate::report::{Report, micros};
use crate::run::Run;
use crate::samples::{Samples, Turns};
use crate::setting::Setting;
use crate::worker::{Section, sections, warm_up};

const TASKS: usize = 8;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = setting.access().provider().await?;
    warm_up(&provider, 1).await?;
    let count = setting.pick(100, 40);
    let mut ratios = Turns::default();
    let (mut gaps, mut lengths) = (Samples::default(), Samples::default());
    let mut overlaps = 0;
    for _ in 0..setting.turns(7, 3) {
        let run = Run::of(compete(&provider, count).await?);
        ratios.add(run.over_ideal());
        gaps.extend(run.gaps(|_, _| true));
        overlaps += run.beyond(1);
        lengths.extend(run.lengths);
    }
    provider.shutdown().await;
    report.at_most(0.0, "8 tasks: sections that overlapped", overlaps, "sections");
    report.millis("8 tasks: the length of a section, p50", lengths.p50());
    report.at_most(1.06, "8 tasks: time / sum of the sections", &ratios, "x");
    report.at_most(50.0, "8 tasks: hand-over, p50", micros(gaps.p50()), "us");
    report.micros("8 tasks: hand-over, p95", gaps.p95());
    report.micros("8 tasks: hand-over, max", gaps.max());
    Ok(())
}

/// So many sections of each task, which begins the next one at once.
async fn compete(provider: &LockProvider, count: usize) -> anyhow::Result<Vec<Section>> {
    let mut working = JoinSet::new();
    for _ in 0..TASKS {
        let own = sections(provider.lock("contended"), move |noted| noted < count);
        working.spawn(own);
    }
    let mut noted = Vec::new();
    while let Some(sections) = working.join_next().await {
        noted.extend(sections??);
    }
    Ok(noted)
}

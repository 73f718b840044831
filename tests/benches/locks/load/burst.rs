//! Very many tasks that begin at once, each with a name of its own that has no document yet.
//!
//! The own commands show what the beginning of so many tasks costs by itself: a reply that has come waits until the runtime
//! has begun the tasks before it.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::report::Report;
use crate::rivals::{Crowd, LIBRARY, OWN, Rival};
use crate::samples::{Samples, Turns, ratio};
use crate::setting::Setting;

const TASKS: usize = 10_000;

/// The goals of the first hold, divided by a lone acquire, and of the last one in seconds.
const FIRST: f64 = 2.0;
const LAST: f64 = 5.0;

/// The bursts of one way.
#[derive(Default)]
struct Bursts {
    /// The first holds divided by the lone acquires.
    over_lone: Turns,
    first: Samples,
    /// The times of the last holds in seconds.
    last: Turns,
    failed: usize,
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let (rivals, provider) = Rival::all(setting.access()).await?;
    let (mut own, mut library) = (Bursts::default(), Bursts::default());
    for _ in 0..setting.turns(5, 2) {
        own.add(&rivals[OWN]).await?;
        library.add(&rivals[LIBRARY]).await?;
    }
    let who = "10,000 tasks at once";
    let name = format!("{who}: the first hold / a lone acquire, p50");
    report.at_most(FIRST, name.as_str(), &library.over_lone, "x");
    report.figure(format!("{name}, own commands"), &own.over_lone, "x");
    report.millis(format!("{who}: the first hold, p50"), library.first.p50());
    report.at_most(LAST, format!("{who}: the last hold"), &library.last, "s");
    report.figure(format!("{who}: the last hold, own commands"), &own.last, "s");
    let name = format!("{who}: acquires that failed");
    report.at_most(0.0, name, library.failed, "acquires");
    provider.shutdown().await;
    Ok(())
}

impl Bursts {
    async fn add(&mut self, rival: &Rival) -> anyhow::Result<()> {
        let alone = Crowd {
            has_new_names: true,
            ..Crowd::of(1, Duration::from_millis(200))
        };
        let lone = alone.run(rival).await?.lengths.acquires.p50();
        let holds = burst(rival).await?;
        let first = holds.iter().min().copied().unwrap_or_default();
        self.over_lone.add(ratio(first, lone));
        self.first.add(first);
        let last = holds.iter().max().copied().unwrap_or_default();
        self.last.add(last.as_secs_f64());
        self.failed += TASKS - holds.len();
        Ok(())
    }
}

/// The times from the beginning to each hold.
async fn burst(rival: &Rival) -> anyhow::Result<Vec<Duration>> {
    let mut running = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..TASKS {
        let rival = rival.clone();
        running.spawn(async move { rival.cycle(&rival.new_name()).await });
    }
    let mut holds = Vec::new();
    while let Some(cycle) = running.join_next().await {
        match cycle? {
            Ok(cycle) => holds.push(cycle.acquired - begun),
            Err(error) => eprintln!("an acquire of the burst failed: {error}"),
        }
    }
    Ok(holds)
}

//! Four of eight processes are killed while they wait: how long do the others wait after that?
//!
//! This program holds the lock while it kills them, so that none of them has it.

use super::tasks;
use crate::clock;
use crate::contest::{Contest, Times};
use crate::queue::Client;
use crate::report::Report;
use crate::samples::Turns;
use crate::setting::Setting;

/// The goal of the longest wait in milliseconds.
const GOAL: f64 = 200.0;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = setting.access().provider().await?;
    let times = Times::of(setting);
    let mut waits = Turns::default();
    for turn in 0..setting.turns(5, 2) {
        let name = format!("dead:{turn}");
        let job = |_| {
            (
                setting.access().clone(),
                times.queueing(Client::Woken, tasks(&name, 1)),
            )
        };
        let mut contest = Contest::start((0..8).map(job)).await?;
        contest.go().await;
        tokio::time::sleep(times.counted / 2).await;
        let guard = provider.lock(&name).acquire().await?;
        contest.kill(4);
        let killed = clock::now();
        guard.release().await?;
        let after = contest.end().await?.part(|section| section.begun > killed);
        waits.add(after.waits.max().as_secs_f64() * 1e3);
    }
    provider.shutdown().await;
    report.at_most(GOAL, "four of 8 x 1 die: the longest wait after it", &waits, "ms");
    Ok(())
}

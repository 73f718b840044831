//! Eight processes arrive one after the other at a lock that this program holds: in which order are they served after its
//! release?

use std::time::Duration;

use tokio::time::sleep;

use super::tasks;
use crate::clock;
use crate::contest::Contest;
use crate::queue::{Client, Length, Queueing};
use crate::report::Report;
use crate::samples::{Turns, number};
use crate::setting::Setting;

const PROCESSES: usize = 8;
/// The time between two arrivals.
const BETWEEN: Duration = Duration::from_millis(200);
/// The goal of the time from the release to the last section, in milliseconds.
const GOAL: f64 = 160.0;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = setting.access().provider().await?;
    let (mut moved, mut served) = (Turns::default(), Turns::default());
    for turn in 0..setting.turns(9, 3) {
        let name = format!("arrivals:{turn}");
        let queueing = Queueing {
            client: Client::Woken,
            providers: 1,
            wants: tasks(&name, 1),
            length: Length::Once,
        };
        let job = |_| (setting.access().clone(), queueing.clone());
        let mut contest = Contest::start((0..PROCESSES).map(job)).await?;
        let guard = provider.lock(&name).acquire().await?;
        for process in 0..PROCESSES {
            contest.go_one(process).await;
            sleep(BETWEEN).await;
        }
        let released = clock::now();
        guard.release().await?;
        let order = contest.end().await?.sections;
        let places = order.iter().enumerate();
        let differences: usize = places
            .map(|(place, section)| place.abs_diff(section.process))
            .sum();
        moved.add(number(differences) / number(PROCESSES));
        let last = order.last().map(|section| section.begun).unwrap_or_default();
        served.add(last.saturating_sub(released).as_secs_f64() * 1e3);
    }
    provider.shutdown().await;
    let who = "8 processes, one after the other";
    let name = format!("{who}: place in the service - place in the arrival, mean");
    report.figure(name, &moved, "places");
    let name = format!("{who}: the last one served after the release");
    report.at_most(GOAL, name, &served, "ms");
    Ok(())
}

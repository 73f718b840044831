//! Several processes with some tasks each, which share one server.

use std::time::Duration;

use mongolock_tests::order;
use serde::{Deserialize, Serialize};

use crate::child;
use crate::report::Report;
use crate::rivals::{Crowd, Done, LIBRARY, Measured, Rival, in_turns};
use crate::setting::{Access, Setting};
use crate::worker::{Job, print, ready};

const PROCESSES: usize = 4;
const TASKS: usize = 16;
const GOAL: f64 = 1.2;

/// What one process does: each step is one way for this time.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Share {
    /// The number of the process, which makes its names differ from those of the others.
    number: usize,
    /// The places of the ways of all steps.
    ways: Vec<usize>,
    time: Duration,
}

pub(super) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    const WAYS: usize = 3;
    let turns = setting.turns(7, 3);
    let order = |turn| (0..WAYS).map(move |step| (turn + step) % WAYS);
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        let share = Share {
            number,
            ways: (0..=turns).flat_map(order).collect(),
            time: setting.pick(Duration::from_millis(1_500), Duration::from_millis(300)),
        };
        processes.push(child::start(setting.access(), Job::Load(share)).await?);
    }
    let measured: [_; WAYS] = in_turns(turns, async |_| {
        child::go(&mut processes).await;
        let mut all = Done::default();
        for process in &mut processes {
            all.rate += child::result::<f64>(process).await?;
        }
        Ok(all)
    })
    .await?;
    for mut process in processes {
        process.end().await;
    }
    let ratios = measured[LIBRARY].over(&Measured::floor(&measured));
    let name = format!("{PROCESSES} processes x {TASKS} tasks: cycles / the faster floor");
    report.at_least(GOAL, name, &ratios, "x");
    let name = format!("{PROCESSES} processes x {TASKS} tasks: cycles, mongolock");
    report.figure(name, &measured[LIBRARY].rates(), "/s");
    Ok(())
}

/// The job of one process.
pub(crate) async fn share(access: &Access, share: Share) -> anyhow::Result<()> {
    let (rivals, provider) = Rival::all(access).await?;
    let crowd = Crowd {
        first_task: (share.number + 1) * 10_000,
        ..Crowd::of(TASKS, share.time)
    };
    ready().await;
    for (step, way) in share.ways.into_iter().enumerate() {
        if step > 0 {
            order().await;
        }
        print(&crowd.run(&rivals[way]).await?.rate)?;
    }
    provider.shutdown().await;
    Ok(())
}

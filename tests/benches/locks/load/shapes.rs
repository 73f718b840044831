//! One process with more and more tasks; also with new names, without waiting for releases, and far from the server.

use std::time::Duration;

use mongolock::LockProvider;

use crate::order::far_proxy;
use crate::report::Report;
use crate::rivals::{CHEAPEST, Crowd, Done, LIBRARY, Measured, OWN, Rival, UNAWAITED, in_turns};
use crate::server::Server;
use crate::setting::{self, Setting};

/// The numbers of tasks, and the least cycles, divided by those of the faster floor and by those of the library's own
/// commands.
const SHAPES: [(usize, Option<f64>, Option<f64>); 9] = [
    (1, None, Some(0.93)),
    (2, None, None),
    (3, None, None),
    (4, None, None),
    (8, None, Some(0.95)),
    (16, None, Some(0.95)),
    (MANY, Some(2.0), None),
    (256, Some(4.0), None),
    (1_000, Some(3.5), None),
];

/// The number of tasks of the figures that are measured with one number only.
const MANY: usize = 64;

/// The least cycles with new names in each, and without waiting for releases, divided by those of the faster floor.
const NEW_NAMES: f64 = 2.0;
const UNAWAITED_RELEASES: f64 = 2.0;

/// The greatest time of the server's processor for a cycle of [`MANY`] tasks, in microseconds.
const PROCESSOR: f64 = 250.0;

/// The numbers of tasks that are far from the server, and the least cycles divided by those of the library's own commands.
const FAR: [(usize, Option<f64>); 3] = [(8, Some(0.95)), (16, Some(0.95)), (MANY, None)];

/// How long a way runs in each turn.
fn time(setting: &Setting) -> Duration {
    setting.pick(Duration::from_millis(1_500), Duration::from_millis(300))
}

pub(super) async fn measure(
    rivals: &[Rival; 4],
    server: &Server,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    for (tasks, over_floor, over_own) in SHAPES {
        let crowd = Crowd::of(tasks, time(setting));
        let run = async |index: usize| beside(server, crowd, &rivals[index]).await;
        let measured: [_; 3] = in_turns(setting.turns(), run).await?;
        let who = format!("{tasks} task{}", if tasks == 1 { "" } else { "s" });
        let floor = Measured::floor(&measured);
        let rates = [
            ("own commands", measured[OWN].rates()),
            ("mongolock", measured[LIBRARY].rates()),
            ("the faster floor", floor.iter().copied().collect()),
        ];
        for (way, rates) in rates {
            report.figure(format!("{who}: cycles, {way}"), &rates, "/s");
        }
        let library = &measured[LIBRARY];
        let name = format!("{who}: cycles / the faster floor");
        report.at_least(over_floor, name, &library.over(&floor), "x");
        let name = format!("{who}: cycles / own commands");
        report.at_least(over_own, name, &library.over_other(&measured[OWN]), "x");
        report.micros(format!("{who}: a cycle, p50"), library.lengths.all.p50());
        let name = format!("{who}: a cycle / own commands, p50");
        report.figure(name, &library.median_over(&measured[OWN]), "x");
        if tasks == MANY {
            processor(&who, &measured, setting, report);
        }
    }
    unawaited(rivals, setting, report).await
}

/// Runs a crowd, and measures the server beside it.
async fn beside(server: &Server, crowd: Crowd, rival: &Rival) -> anyhow::Result<Done> {
    let (mut done, load) = server.during(crowd.run(rival)).await?;
    done.processor = load.of_each(done.lengths.all.len());
    Ok(done)
}

fn processor(who: &str, measured: &[Measured; 3], setting: &Setting, report: &mut Report) {
    if setting.address().is_none() {
        // The server may be on another machine, and have other clients.
        return;
    }
    let name = format!("{who}: the server's processor for each cycle");
    report.at_most(PROCESSOR, name.as_str(), &measured[LIBRARY].processor, "us");
    for (floor, label) in [(OWN, "own commands"), (CHEAPEST, "the cheapest commands")] {
        report.figure(format!("{name}, {label}"), &measured[floor].processor, "us");
    }
}

/// Calls that do not wait for their releases.
async fn unawaited(rivals: &[Rival; 4], setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let crowd = Crowd::of(MANY, time(setting));
    let ways = [&rivals[OWN], &rivals[CHEAPEST], &rivals[UNAWAITED]];
    let run = async |index: usize| crowd.run(ways[index]).await;
    let measured: [_; 3] = in_turns(setting.turns(), run).await?;
    let ratios = measured[LIBRARY].over(&Measured::floor(&measured));
    let name = format!("{MANY} tasks, without waiting for releases: cycles / the faster floor");
    report.at_least(UNAWAITED_RELEASES, name, &ratios, "x");
    Ok(())
}

/// Each cycle has a name that no document has yet.
pub(super) async fn of_new_names(
    rivals: &[Rival; 4],
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let crowd = Crowd {
        has_new_names: true,
        ..Crowd::of(MANY, time(setting))
    };
    let run = async |index: usize| crowd.run(&rivals[index]).await;
    let measured: [_; 3] = in_turns(setting.turns(), run).await?;
    let ratios = measured[LIBRARY].over(&Measured::floor(&measured));
    let name = format!("{MANY} tasks, new names: cycles / the faster floor");
    report.at_least(NEW_NAMES, name, &ratios, "x");
    Ok(())
}

/// A proxy delays each message on its way to the server and back.
pub(super) async fn far(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let Some(address) = setting.address() else {
        // The proxy needs the address of one server.
        return Ok(());
    };
    let proxy = far_proxy(address).await?;
    let database = setting::database(&proxy.uri(), setting.database_name()).await?;
    let provider = LockProvider::new(&database);
    let [own, _, library, _] = Rival::all(&database, &provider);
    let ways = [own, library];
    for (tasks, goal) in FAR {
        let crowd = Crowd::of(tasks, time(setting));
        let run = async |index: usize| crowd.run(&ways[index]).await;
        let [own, library] = in_turns(setting.turns(), run).await?;
        let who = format!("{tasks} tasks, 3 ms farther each way");
        let name = format!("{who}: cycles / own commands");
        report.at_least(goal, name, &library.over_other(&own), "x");
        let name = format!("{who}: a cycle / own commands, p50");
        report.figure(name, &library.median_over(&own), "x");
    }
    provider.shutdown().await;
    Ok(())
}

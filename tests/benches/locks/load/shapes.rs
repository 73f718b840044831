//! One process with more and more tasks; also with new names, without waiting for releases, and far from the server.

use std::time::Duration;

use crate::order::far_proxy;
use crate::report::Report;
use crate::rivals::{CHEAPEST, Crowd, Done, LIBRARY, Measured, OWN, Rival, UNAWAITED, in_turns};
use crate::server::Server;
use crate::setting::{Access, Setting};

/// A number of tasks, and the least cycles, divided by those of the library's own commands and by those of another build.
type Shape = (usize, Option<f64>, Option<f64>);

const NEAR: [Shape; 7] = [
    (1, Some(0.98), None),
    (4, Some(0.92), None),
    (8, Some(0.90), None),
    (16, Some(0.95), None),
    (MANY, None, Some(1.05)),
    (256, None, Some(1.15)),
    (1_000, None, Some(1.5)),
];

/// The tasks that are far from the server.
const FAR: [Shape; 3] = [
    (8, None, Some(0.92)),
    (16, None, Some(0.92)),
    (MANY, None, Some(0.97)),
];

/// The number of tasks of the figures that are measured with one number only.
const MANY: usize = 64;

/// The least cycles with new names in each, divided by those of the faster floor; and without waiting for releases, for the numbers
/// of tasks.
const NEW_NAMES: f64 = 2.0;
const UNAWAITED_RELEASES: [(usize, f64); 2] = [(1, 1.7), (MANY, 2.0)];

/// The greatest time of the server's processor for a cycle of [`MANY`] tasks, in microseconds.
const PROCESSOR: f64 = 250.0;

/// The places of the ways that the shapes compare.
const CONNECT: usize = 1;
const NEW: usize = 2;

/// How long a way runs in each turn.
fn time(setting: &Setting) -> Duration {
    setting.pick(Duration::from_millis(1_500), Duration::from_millis(300))
}

/// The library's own commands, and providers of `connect` and of `new`.
async fn ways(access: &Access) -> anyhow::Result<[Rival; 3]> {
    Ok([
        Rival::own(&access.database().await?),
        Rival::Library(access.with_new(false).provider().await?, "connect"),
        Rival::Library(access.with_new(true).provider().await?, "new"),
    ])
}

pub(crate) async fn near(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let ways = ways(setting.access()).await?;
    let server = Server::of(setting.database().await?.client()).await?;
    for shape in NEAR {
        let run = async |crowd: Crowd, way: &Rival| {
            let (mut done, load) = server.during(crowd.run(way)).await?;
            done.processor = load.of_each(done.lengths.all.len());
            Ok(done)
        };
        let who = format!("{} task{}", shape.0, if shape.0 == 1 { "" } else { "s" });
        let measured = compare(&who, shape, &ways, run, setting, report).await?;
        // A server of its own has no other clients, and is on this machine.
        if shape.0 == MANY && setting.address().is_some() {
            let name = format!("{who}: the server's processor for each cycle");
            report.at_most(PROCESSOR, name.as_str(), &measured[CONNECT].processor, "us");
            report.figure(format!("{name}, own commands"), &measured[OWN].processor, "us");
        }
    }
    end(ways).await;
    Ok(())
}

/// A proxy delays each message on its way to the server and back.
pub(crate) async fn far(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let Some(address) = setting.address() else {
        // The proxy needs the address of one server.
        return Ok(());
    };
    let proxy = far_proxy(address).await?;
    let ways = ways(&setting.access().at(proxy.uri())).await?;
    for shape in FAR {
        let run = async |crowd: Crowd, way: &Rival| crowd.run(way).await;
        let who = format!("{} tasks, 3 ms farther each way", shape.0);
        compare(&who, shape, &ways, run, setting, report).await?;
    }
    end(ways).await;
    Ok(())
}

/// Measures the ways in turns with a number of tasks.
async fn compare(
    who: &str,
    (tasks, over_own, beside): Shape,
    ways: &[Rival; 3],
    run: impl AsyncFn(Crowd, &Rival) -> anyhow::Result<Done>,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<[Measured; 3]> {
    let crowd = Crowd::of(tasks, time(setting));
    let turn = async |index: usize| run(crowd, &ways[index]).await;
    let measured: [_; 3] = in_turns(setting.turns(7, 3), turn).await?;
    let own = &measured[OWN];
    report.figure(format!("{who}: cycles, own commands"), &own.rates(), "/s");
    for (way, goal, beside) in [(CONNECT, over_own, beside), (NEW, None, None)] {
        let (library, label) = (&measured[way], ways[way].label());
        report.beside(beside, format!("{who}: cycles, {label}"), &library.rates(), "/s");
        let name = format!("{who}: cycles / own commands, {label}");
        report.at_least(goal, name, &library.over_other(own), "x");
        let name = format!("{who}: a cycle / own commands, p50, {label}");
        report.figure(name, &library.median_over(own), "x");
    }
    for (way, measured) in ways.iter().zip(&measured).filter(|_| tasks == 1) {
        let (label, lengths) = (way.label(), &measured.lengths);
        report.micros(format!("{who}: acquire, p50, {label}"), lengths.acquires.p50());
        report.micros(format!("{who}: release, p50, {label}"), lengths.releases.p50());
    }
    Ok(measured)
}

async fn end(ways: [Rival; 3]) {
    for way in ways {
        if let Rival::Library(provider, _) = way {
            provider.shutdown().await;
        }
    }
}

/// Calls that do not wait for their releases. They use several names in turn, because the next call of the same name would wait
/// for the release.
pub(super) async fn unawaited(
    rivals: &[Rival; 4],
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    for (tasks, goal) in UNAWAITED_RELEASES {
        let crowd = Crowd::of(tasks, time(setting));
        let ways = [&rivals[OWN], &rivals[CHEAPEST], &rivals[UNAWAITED]];
        let run = async |index: usize| crowd.run(ways[index]).await;
        let measured: [_; 3] = in_turns(setting.turns(7, 3), run).await?;
        let ratios = measured[LIBRARY].over(&Measured::floor(&measured));
        let who = format!("{tasks} task{}", if tasks == 1 { "" } else { "s" });
        let name = format!("{who}, without waiting for releases: cycles / the faster floor");
        report.at_least(goal, name, &ratios, "x");
    }
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
    let measured: [_; 3] = in_turns(setting.turns(7, 3), run).await?;
    let ratios = measured[LIBRARY].over(&Measured::floor(&measured));
    let name = format!("{MANY} tasks, new names: cycles / the faster floor");
    report.at_least(NEW_NAMES, name, &ratios, "x");
    Ok(())
}

//! Acquiring and releasing a lock that no other client wants.
//!
//! Most holds are of this kind. There are two floors: the library's own commands through the driver alone, and the two
//! cheapest commands that any lock could use. The library is compared with the faster one of the turn. All of them run on
//! tasks of the runtime's workers, also with one task: on the main thread the runtime wakes up more slowly.
//!
//! Calls that do not wait for their release use several names in turn, because the next call of the same name would wait for
//! it.

use std::time::Duration;

use mongolock::LockProvider;

use crate::report::Report;
use crate::rivals::{Crowd, LIBRARY, Measured, Rival, UNAWAITED, in_turns};
use crate::setting::Setting;

/// The numbers of tasks, with the goals of cycles, and of cycles that do not wait for their release, divided by those of the
/// faster floor. The group `load` has more numbers.
const SHAPES: [(usize, [f64; 2]); 2] = [(1, [0.93, 1.7]), (64, [2.0, 2.0])];

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    let provider = LockProvider::new(&database);
    let rivals = Rival::all(&database, &provider);
    let time = setting.pick(Duration::from_secs(3), Duration::from_millis(600));
    for (tasks, goals) in SHAPES {
        let crowd = Crowd::of(tasks, time);
        let measured = in_turns(setting.turns(), async |index| crowd.run(&rivals[index]).await).await?;
        tell(tasks, &rivals, &measured, goals, report);
    }
    provider.shutdown().await;
    Ok(())
}

fn tell(tasks: usize, rivals: &[Rival; 4], measured: &[Measured; 4], goals: [f64; 2], report: &mut Report) {
    let who = format!("{tasks} task{}", if tasks == 1 { "" } else { "s" });
    for (rival, measured) in rivals.iter().zip(measured) {
        let name = format!("{who}: cycles, {}", rival.label());
        report.figure(name, &measured.rates(), "/s");
        let lengths = &measured.lengths;
        for (what, length) in [
            ("a cycle, p50", lengths.all.p50()),
            ("a cycle, p95", lengths.all.p95()),
            ("acquire, p50", lengths.acquires.p50()),
            ("release, p50", lengths.releases.p50()),
        ] {
            report.micros(format!("{who}: {what}, {}", rival.label()), length);
        }
    }
    let floor = Measured::floor(measured);
    let name = format!("{who}: cycles / the faster floor");
    report.at_least(goals[0], name, &measured[LIBRARY].over(&floor), "x");
    let name = format!("{who}: cycles without waiting for the release / the faster floor");
    report.at_least(goals[1], name, &measured[UNAWAITED].over(&floor), "x");
}

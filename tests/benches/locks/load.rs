//! Tasks, each with a lock of its own: what one server carries.
//!
//! The requests of many tasks wait for a place among the commands in flight, and become one command. So the
//! library does more cycles than any floor whose commands have one request each. With few tasks nothing goes together, and it must
//! not be slower than its own commands.
//!
//! The floors have the driver's pool as it is, with ten connections. All ways run on tasks of the runtime's workers, also with
//! one task: on the main thread the runtime wakes up more slowly.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{Document, doc};
use tokio::time::sleep;

use crate::report::Goal::{AtLeast, AtMost, Beside};
use crate::report::Report;
use crate::rivals::{Crowd, Done, LIBRARY, OWN, Rival, figures, in_turns, over};
use crate::setting::Setting;

/// The numbers of tasks with the least cycles near the server, divided by those of the library's own commands and by those of
/// another build, and those far from the server, divided by those of another build.
type TaskRow = (usize, Option<f64>, Option<f64>, Option<f64>);
const TASKS: [TaskRow; 8] = [
    (1, Some(0.98), None, None),
    (2, None, None, None),
    (4, Some(0.92), None, None),
    (8, Some(0.90), None, Some(0.92)),
    (16, Some(0.95), None, Some(0.92)),
    (64, None, Some(1.05), Some(0.97)),
    (256, None, Some(1.15), None),
    (1_000, None, Some(1.5), None),
];

/// The tasks beside one that wants a name whose document is blocked, and the goal of their acquires, p99.9, in milliseconds.
const OTHERS: usize = 63;
const BESIDE_BLOCKED: f64 = 600.0;
/// The time that a transaction blocks the document, and the pause before the next one.
const BLOCKED: Duration = Duration::from_millis(1_500);
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn near(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let ways = Rival::all(setting.access()).await?;
    for (tasks, over_own, beside, _) in TASKS {
        report.about(counted(tasks));
        compare(tasks, [over_own, beside], &ways, setting, report).await?;
    }
    ways[LIBRARY].end().await;
    Ok(())
}

/// A proxy delays each message on its way to the server and back.
pub(crate) async fn far(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let Some(proxy) = setting.far_proxy().await? else {
        return Ok(());
    };
    let ways = Rival::all(&setting.access().at(proxy.uri())).await?;
    for (tasks, _, _, beside) in TASKS {
        report.about(format!("{}, 3 ms farther each way", counted(tasks)));
        compare(tasks, [None, beside], &ways, setting, report).await?;
    }
    ways[LIBRARY].end().await;
    Ok(())
}

/// A number of tasks in words.
fn counted(tasks: usize) -> String {
    format!("{tasks} task{}", if tasks == 1 { "" } else { "s" })
}

/// Measures the ways in turns with a number of tasks. The goals are the least cycles, divided by those of the library's own
/// commands and by those of another build.
async fn compare(
    tasks: usize,
    [over_own, beside]: [Option<f64>; 2],
    ways: &[Rival; 3],
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let time = Duration::from_millis(setting.pick(1_500, 300));
    let turn = async |way: usize| Crowd::of(tasks, time).run(&ways[way]).await;
    let [own, cheapest, library] = &in_turns(setting.turns(7, 3), turn).await?;
    let rate = |done: &Done| done.rate;
    report.figure("cycles, own commands", figures(own, rate), "/s", None);
    let what = "cycles, connect";
    report.figure(what, figures(library, rate), "/s", beside.map(Beside));
    let what = "cycles / own commands, connect";
    report.figure(what, over(library, own, rate), "x", over_own.map(AtLeast));
    let what = "cycles / the cheapest commands";
    report.figure(what, over(library, cheapest, rate), "x", None);
    let median = |done: &Done| done.cycles.p50();
    let what = "a cycle / own commands, p50, connect";
    report.figure(what, over(library, own, median), "x", None);
    Ok(())
}

/// One name whose document is blocked, and what it costs the others: a transaction of another client has changed the
/// document, and ends after a while, again and again. One task wants the name all the time.
pub(crate) async fn blocked(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let ways = Rival::all(setting.access()).await?;
    let database = setting.database().await?;
    let time = setting.seconds(5, 2);
    let ways = [&ways[OWN], &ways[LIBRARY]];
    let turn = async |way: usize| beside_blocked(ways[way], &database, time).await;
    let [own, library] = in_turns(setting.turns(5, 2), turn).await?;
    report.about("63 tasks beside one blocked name");
    let slow = |done: &Done| done.acquires.percentile(999);
    let goal = AtMost(BESIDE_BLOCKED);
    report.figure("acquire, p99.9", figures(&library, slow), "ms", goal);
    report.figure("acquire, p99.9, own commands", figures(&own, slow), "ms", None);
    let rate = |done: &Done| done.rate;
    let cycles = over(&library, &own, rate);
    report.figure("cycles / own commands", cycles, "x", AtLeast(1.0));
    report.figure("cycles", figures(&library, rate), "/s", None);
    ways[1].end().await;
    Ok(())
}

async fn beside_blocked(rival: &Rival, database: &Database, time: Duration) -> anyhow::Result<Done> {
    let name = rival.name(OTHERS);
    // There must be a document to block.
    rival.cycle(&name).await?;
    let blocking = tokio::spawn(block(database.clone(), name.clone()));
    let wants = rival.clone();
    let wanting = tokio::spawn(async move {
        loop {
            // A wait for the document may be longer than the limits of a call.
            let _ = wants.cycle(&name).await;
        }
    });
    let done = Crowd::of(OTHERS, time).run(rival).await;
    blocking.abort();
    wanting.abort();
    // The next way begins when the transaction has ended.
    if let Ok(ended) = blocking.await {
        ended?;
    }
    let _ = wanting.await;
    sleep(PAUSE).await;
    done
}

/// Changes the document of a lock in transactions, one after the other.
async fn block(database: Database, name: String) -> anyhow::Result<()> {
    let locks = database.collection::<Document>("distributed_locks");
    let mut session = database.client().start_session().await?;
    loop {
        session.start_transaction().await?;
        let touch = doc! { "$set": { "touched": true } };
        let touched = locks
            .update_one(doc! { "_id": &name }, touch)
            .session(&mut session);
        // A claim may change the document at the same time, which is an error for the transaction.
        if touched.await.is_ok() {
            sleep(BLOCKED).await;
        }
        session.abort_transaction().await?;
        sleep(PAUSE).await;
    }
}

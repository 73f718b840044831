//! One name whose document is blocked, and what it costs the others: a transaction of another client has changed the
//! document, and ends after a while, again and again. One task wants the name all the time.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{Document, doc};
use tokio::time::sleep;

use crate::report::Report;
use crate::rivals::{Crowd, Done, LIBRARY, OWN, Rival, in_turns};
use crate::samples::Turns;
use crate::setting::Setting;

/// The tasks that want other names.
const OTHERS: usize = 63;

/// The time that a transaction takes, and the pause before the next one.
const BLOCKED: Duration = Duration::from_millis(1_500);
const PAUSE: Duration = Duration::from_millis(100);

/// The goal of an acquire of the others, p99.9, in milliseconds.
const GOAL: f64 = 600.0;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let (rivals, provider) = Rival::all(setting.access()).await?;
    let database = setting.database().await?;
    let ways = [&rivals[OWN], &rivals[LIBRARY]];
    let time = setting.pick(Duration::from_secs(5), Duration::from_secs(2));
    let run = async |index: usize| beside_blocked(ways[index], &database, time).await;
    let [own, library] = in_turns(setting.turns(5, 2), run).await?;
    let who = "63 tasks beside one blocked name";
    let millis = |times: &[Duration]| -> Turns {
        let millis = times.iter().map(|time| time.as_secs_f64() * 1e3);
        millis.collect()
    };
    let name = format!("{who}: acquire, p99.9");
    report.at_most(GOAL, name.as_str(), &millis(&library.slow_acquires), "ms");
    let name = format!("{name}, own commands");
    report.figure(name, &millis(&own.slow_acquires), "ms");
    report.millis(format!("{who}: acquire, max"), library.lengths.acquires.max());
    let name = format!("{who}: cycles / own commands");
    report.at_least(1.0, name, &library.over_other(&own), "x");
    report.figure(format!("{who}: cycles"), &library.rates(), "/s");
    provider.shutdown().await;
    Ok(())
}

async fn beside_blocked(rival: &Rival, database: &Database, time: Duration) -> anyhow::Result<Done> {
    let name = format!("{}:blocked", rival.label());
    // There must be a document to block.
    rival.cycle(&name).await?;
    let blocking = tokio::spawn(block(database.clone(), name.clone()));
    let wanting = tokio::spawn(want(rival.clone(), name));
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

/// Wants one name again and again.
async fn want(rival: Rival, name: String) {
    loop {
        // A wait for the document may be longer than the limits of a call.
        let _ = rival.cycle(&name).await;
    }
}

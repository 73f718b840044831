//! Plays the scenes one after the other, and judges the outcome.

use std::time::Duration;

use anyhow::ensure;
use mongodb::Database;
use mongolock::{IndexState, LockProvider};
use mongolock_examples::output::println;
use mongolock_tests::Deployment;

use crate::options::Options;
use crate::scene;
use crate::summary::{Summary, heading, headline, line};
use crate::timeline::Timeline;
use crate::ways::Way;

/// How much longer than the lease writer 2 waits for it to run out.
const SLACK: Duration = Duration::from_secs(60);

/// Whether everything was as it should be.
pub(crate) async fn work(
    options: &Options,
    deployment: &Deployment,
    database: &Database,
) -> anyhow::Result<bool> {
    // Writer 2 is not stopped and takes a lease of the usual length.
    let provider = LockProvider::builder(database)
        .acquire_timeout(options.expiry + SLACK)
        .owner("writer 2")
        .build()?;
    // No transaction can begin on a collection whose index is being made.
    let state = provider.admin().index_state().await;
    ensure!(state == IndexState::Ready, "the index of the locks: {state:?}");
    provider.clone().set_global()?;

    println(&heading(options))?;
    let mut summary = Summary::default();
    for run in 1..=options.runs {
        let mut outcomes = Vec::new();
        for way in Way::ALL {
            let timeline = if options.runs == 1 {
                println(&headline(way))?;
                Timeline::shown()
            } else {
                Timeline::hidden()
            };
            outcomes.push(scene::play(way, options, deployment.uri(), database, &timeline).await?);
        }
        if options.runs > 1 {
            println(&line(run, &outcomes))?;
        }
        summary.add(outcomes);
    }
    provider.shutdown().await;
    println(&summary.to_string())?;
    Ok(summary.is_right())
}

//! `watch`: the changes of locks, one line for each.

mod page;

use std::time::Duration;

use mongolock::{LockError, LockEvents, LockFilter, LockProvider};
use tokio::time::sleep;

use self::page::{Pulse, WatchPage};
use crate::cli::{ConnectionArguments, WatchArguments};
use crate::exit::Exit;
use crate::failure::Failure;

/// The pause between two checks whether a primary replies.
const PULSE: Duration = Duration::from_secs(1);

pub(crate) async fn watch(
    arguments: WatchArguments,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let collections = connection.collections().await?;
    // Without change streams the library reads the locks once a second, and shorter holds would be missing here.
    let Some(stream) = collections.open_stream().await else {
        return Err(Failure::new(
            "the server opens no change stream within 5 s; perhaps no majority of the replica set confirms writes",
        )
        .help("`mongolock doctor` says which members are missing or late."));
    };
    stream.map_err(|error| refused(error.into()))?;
    let provider = collections.provider;
    let filter = match arguments.prefix {
        Some(prefix) => LockFilter::new().prefix(prefix),
        None => LockFilter::new(),
    };
    let events = provider.admin().events(filter);
    let page = WatchPage::new(arguments.json);
    // Both run until a failure, which ends the program.
    Err(tokio::select! {
        failure = show(events, &page) => failure,
        failure = tell_outages(&provider, &page) => failure,
    })
}

/// Shows the events until a failure.
async fn show(mut events: LockEvents, page: &WatchPage) -> Failure {
    while let Some(event) = events.next().await {
        let shown = event.map_err(refused).and_then(|event| page.show(&event));
        if let Err(failure) = shown {
            return failure;
        }
    }
    // They end only with an error.
    Failure::new("the events have ended")
}

/// Why the locks cannot be watched.
fn refused(error: LockError) -> Failure {
    Failure::of_stream(error, "watch the locks", "the collection of the locks")
}

/// Reports when no primary replies, and when one replies again. The events do not show that: they continue after an
/// election, and a connection that is cut silently looks like one without events.
async fn tell_outages(provider: &LockProvider, page: &WatchPage) -> Failure {
    let mut is_gone = false;
    loop {
        sleep(PULSE).await;
        let health = provider.health().await;
        if health.has_primary != is_gone {
            continue;
        }
        is_gone = !health.has_primary;
        let pulse = if is_gone {
            Pulse::Gone(health.error.map_or_else(
                || "the replica set has no primary".to_owned(),
                |error| Failure::from(error).to_string(),
            ))
        } else {
            Pulse::Back
        };
        if let Err(failure) = page.show_pulse(&pulse) {
            return failure;
        }
    }
}

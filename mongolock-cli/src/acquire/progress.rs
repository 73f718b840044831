//! What is said during a wait: one line, for a person or for a log.

use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::Duration;

use mongolock::{LockProvider, LockState};
use tokio::time::sleep;

use crate::cli::WantedLocks;
use crate::failure::warn;

/// At a terminal a shorter wait is not worth a line.
const SILENCE: Duration = Duration::from_secs(1);

/// The shortest wait that is reported in a log.
const LOGGED: Duration = Duration::from_secs(5);

/// Waits for a result, and says once whom this program waits for.
pub(super) async fn shown<T>(
    provider: &LockProvider,
    wanted: &WantedLocks,
    waiting: impl Future<Output = T>,
) -> T {
    let showing = async {
        sleep(if io::stderr().is_terminal() {
            SILENCE
        } else {
            LOGGED
        })
        .await;
        let holder = holder(provider, wanted).await;
        warn(format_args!("waiting for {}{holder}", wanted.names.join(", ")));
        pending::<()>().await;
    };
    tokio::select! {
        result = waiting => result,
        () = showing => unreachable!("it is shown until the wait ends"),
    }
}

/// The holder of the first of the names that is held or marked as done; none if it cannot be read.
async fn holder(provider: &LockProvider, wanted: &WantedLocks) -> String {
    if wanted.permits.is_some() {
        return String::new();
    }
    for name in &wanted.names {
        if let Ok(Some(info)) = provider.admin().get(name).await
            && matches!(info.state, LockState::Held | LockState::Done)
        {
            let owner = info.owner.unwrap_or_else(|| "another program".to_owned());
            return match info.state {
                LockState::Done => format!(", marked as done by {owner}"),
                _ => format!(", held by {owner}"),
            };
        }
    }
    String::new()
}

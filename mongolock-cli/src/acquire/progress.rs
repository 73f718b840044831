//! The progress of a wait: shown continuously at a terminal, and as one line in a log.

use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use mongolock::{LockProvider, LockState};
use tokio::time::sleep;

use crate::cli::Wanted;
use crate::failure::warn;
use crate::text::{escaped, short};

/// A shorter wait is not worth a line.
const SILENCE: Duration = Duration::from_secs(1);

/// The shortest wait that is reported in a log.
const LOGGED: Duration = Duration::from_secs(5);

/// Returns the cursor to the beginning of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Waits for a result, and shows the holder for which this program waits.
pub(super) async fn shown<T>(
    provider: &LockProvider,
    wanted: &Wanted,
    waiting: impl Future<Output = T>,
) -> T {
    let mut is_shown = false;
    let is_terminal = io::stderr().is_terminal();
    let showing = async {
        if is_terminal {
            show(provider, wanted, &mut is_shown).await;
        }
        sleep(LOGGED).await;
        let holder = holder(provider, wanted).await;
        warn(format_args!("waiting for {}{holder}", wanted.names.join(", ")));
        pending::<()>().await;
    };
    let result = tokio::select! {
        result = waiting => result,
        () = showing => unreachable!("it is shown until the wait ends"),
    };
    if is_shown {
        put(CLEAR);
    }
    result
}

async fn show(provider: &LockProvider, wanted: &Wanted, is_shown: &mut bool) {
    let begun = Instant::now();
    let names = wanted.names.join(", ");
    loop {
        sleep(SILENCE).await;
        let holder = holder(provider, wanted).await;
        *is_shown = true;
        let time = short(begun.elapsed());
        put(&format!(
            "{CLEAR}waiting for {} for {time}{holder}",
            escaped(&names)
        ));
    }
}

/// The holder of the first of the names that is held or marked as done; none if it cannot be read.
async fn holder(provider: &LockProvider, wanted: &Wanted) -> String {
    if wanted.permits.is_some() {
        return String::new();
    }
    for name in &wanted.names {
        if let Ok(Some(info)) = provider.admin().get(name).await
            && matches!(info.state, LockState::Held | LockState::Done)
        {
            let owner = info.owner.unwrap_or_else(|| "another program".to_owned());
            let owner = escaped(&owner);
            return match info.state {
                LockState::Done => format!(", marked as done by {owner}"),
                _ => format!(", held by {owner}"),
            };
        }
    }
    String::new()
}

fn put(text: &str) {
    let mut error = io::stderr();
    let _ = error.write_all(text.as_bytes()).and_then(|()| error.flush());
}

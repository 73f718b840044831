//! The message if others have the lock: the holder, and for how long it has held the lock.

use std::time::Duration;

use mongolock::{LockAdmin, LockError, LockInfo, LockProvider, LockState};
use tokio::time::timeout;

use crate::cli::{ConnectionArguments, WantedLocks};
use crate::failure::Failure;
use crate::json::rfc3339;
use crate::show::permits;
use crate::text::{release_command, short};

/// The time limit of reading the lock. Without that read the message has only the result of the attempt.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// The failure of an acquisition; `may_be_done` says that a mark is an expected result. The library's error is that of
/// a wait; a single attempt has none.
pub(super) async fn failure(
    provider: &LockProvider,
    wanted: &WantedLocks,
    may_be_done: bool,
    connection: &ConnectionArguments,
    error: Option<LockError>,
) -> Failure {
    let admin = provider.admin();
    let looked = async {
        match (wanted.permits, wanted.names.as_slice()) {
            (Some(_), [name]) => permits(&admin, name).await.unwrap_or_default(),
            _ => locks(&admin, &wanted.names).await,
        }
    };
    let seen = timeout(LOOK, looked).await.unwrap_or_default();
    // A run with a period that finds a mark only now is too late to report the period as done.
    let refuses = |info: &&LockInfo| info.state == LockState::Done && !may_be_done;
    if let Some(mark) = seen.iter().find(refuses) {
        return marked(mark, connection).code(wanted.busy_code);
    }
    match (error, wanted.permits) {
        (Some(error), _) => error.into(),
        (None, Some(permits)) => Failure::new(no_permit(&wanted.names[0], permits, &seen)),
        (None, None) => Failure::new(not_free(&wanted.names, &seen)),
    }
    .code(wanted.busy_code)
}

/// The locks that have a document.
async fn locks(admin: &LockAdmin, names: &[String]) -> Vec<LockInfo> {
    let mut found = Vec::new();
    for name in names {
        found.extend(admin.get(name).await.ok().flatten());
    }
    found
}

/// A run without `--once-per` is refused by a mark until the mark ends.
fn marked(info: &LockInfo, connection: &ConnectionArguments) -> Failure {
    let (name, left) = (&info.name, short(info.remaining));
    let until = rfc3339(info.expires_at);
    let by = info.owner.as_deref().unwrap_or("an unknown owner");
    let clear = release_command(name, &format!(" --done{}", connection.as_options()));
    Failure::new(format!(
        "lock `{name}` is marked as done by {by} until {until} (for {left})"
    ))
    .help(format!("`{clear}` clears the mark."))
}

/// The first of the names that was found taken.
fn not_free(names: &[String], seen: &[LockInfo]) -> String {
    // An attempt at several locks may still be releasing the first ones.
    let own = format!(":{}", std::process::id());
    let may_be_own =
        |info: &LockInfo| names.len() > 1 && info.owner.as_ref().is_some_and(|owner| owner.ends_with(&own));
    if let Some(info) = seen.iter().find(|info| is_taken(info) && !may_be_own(info)) {
        return format!("lock `{}` is busy: {}", info.name, holder(info));
    }
    format!("lock `{}` is busy", names.join("`, `"))
}

fn no_permit(name: &str, permits: u32, seen: &[LockInfo]) -> String {
    let taken = seen.iter().filter(|info| is_taken(info));
    match taken.min_by_key(|info| info.remaining) {
        Some(first) => format!("no permit of `{name}` is free (of {permits}): {}", holder(first)),
        None => format!("no permit of `{name}` is free (of {permits})"),
    }
}

fn is_taken(info: &LockInfo) -> bool {
    info.state == LockState::Held || !info.remaining.is_zero()
}

/// The holder of a lock that is taken.
fn holder(info: &LockInfo) -> String {
    let left = short(info.remaining);
    match (&info.owner, info.state) {
        (Some(owner), LockState::Held) => format!("the lease of {owner} runs for {left} more"),
        (_, LockState::Done) => "its work has been marked as done meanwhile".to_owned(),
        _ => format!("it is taken for {left} more"),
    }
}

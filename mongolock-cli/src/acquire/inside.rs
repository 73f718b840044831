//! The locks of the commands that have started this program: a wait for one of them would last until its limit, because
//! its holder waits for this program.

use std::env;

use mongolock::{LockProvider, LockState};
use tokio::time::timeout;

use super::{CommandHold, busy};
use crate::cli::WantedLocks;
use crate::failure::Failure;

/// The environment variable with these locks. Other users may see it, so it contains no secret.
const VARIABLE: &str = "MONGOLOCK_INSIDE";

/// The names of the locks, each with the owner and the fencing token of its hold, which identify the hold.
type Around = Vec<(String, String, i64)>;

/// The greatest number of tokens that a hold reserves. The document has the last of them, and the hold the first.
const BLOCK: i64 = 1000;

/// The locks of the commands around this program; none if the variable does not come from this program.
fn around() -> Around {
    let text = env::var(VARIABLE).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The variable for a command that runs under this hold. A permit is left out: another one may be free.
pub(crate) fn variable(hold: &CommandHold, names: &[String]) -> (&'static str, Option<String>) {
    let mut around = around();
    let (context, owner) = (&hold.context, hold.context.owner());
    let own = |name: &String| {
        Some((
            name.clone(),
            owner.to_owned(),
            context.fencing_token_of(name)?.get(),
        ))
    };
    around.extend(names.iter().filter_map(own));
    (VARIABLE, serde_json::to_string(&around).ok())
}

/// Refuses a lock that is held around this program. If that hold was lost, and another one has the lock, the wait is like any other.
pub(super) async fn refuse(provider: &LockProvider, wanted: &WantedLocks) -> Result<(), Failure> {
    if wanted.permits.is_some() {
        return Ok(());
    }
    for (name, owner, token) in around() {
        if !wanted.names.contains(&name) {
            continue;
        }
        // Without a reply the acquisition reports the reason.
        let Ok(Ok(Some(info))) = timeout(busy::LOOK, provider.admin().get(&name)).await else {
            continue;
        };
        let more = info.fencing_token.get().saturating_sub(token);
        let is_same = (0..BLOCK).contains(&more) && info.owner.as_deref() == Some(&*owner);
        if info.state == LockState::Held && is_same {
            let held = format!("lock `{name}` is held by the command around this one");
            return Err(Failure::new(held)
                .help("The lock is free only when that command has ended. Leave this lock out here, or name another one.")
                .code(wanted.busy_code));
        }
    }
    Ok(())
}

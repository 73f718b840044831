//! The answers that people get, in words.

use std::time::Duration;

use mongolock::{LockError, LockInfo};
use mongolock_examples::duration::show;

use crate::edit_session::{Opened, Saved};

pub(crate) fn opened(opened: &Opened) -> String {
    match opened {
        Opened::Yours(item) => format!("locked for you, it reads \"{}\"", item.text),
        Opened::Taken(lock) => holder(lock),
    }
}

/// Who has an item, since when, and for how long yet at least.
pub(crate) fn holder(lock: &LockInfo) -> String {
    let owner = lock.owner.as_deref().unwrap_or("somebody");
    // Both times are of the server's clock.
    let until_its_end = lock.expires_at.timestamp_millis() - lock.acquired_at.timestamp_millis();
    let until_its_end = Duration::from_millis(u64::try_from(until_its_end).unwrap_or_default());
    let since = show(until_its_end.saturating_sub(lock.remaining));
    format!(
        "{owner} has had it for {since}, and has it for {} more at least",
        show(lock.remaining)
    )
}

/// What has become of saving, for the session that has tried it.
pub(crate) fn saved(saved: &Saved, session: &str) -> String {
    let Saved::TooLate { why, now, changed } = saved else {
        return "saved and closed".to_owned();
    };
    let what = match why {
        LockError::Stale { .. } => "refused, for a later session has saved",
        _ => "too late, for your lock had ended",
    };
    if !changed {
        return format!("{what}; nobody has changed it: open it again, and save");
    }
    match &now.saved_by {
        Some(other) if other != session => {
            format!(
                "{what}; {other} has made \"{}\" of it: open it again, and compare",
                now.text
            )
        }
        _ => format!("{what}; your text is there, but others may have opened it before: compare"),
    }
}

pub(crate) fn closed(was_locked: bool) -> String {
    let answer = if was_locked {
        "closed"
    } else {
        "closed; your lock had ended before"
    };
    answer.to_owned()
}

pub(crate) fn given_back(items: u64) -> String {
    match items {
        1 => "1 item is given back".to_owned(),
        items => format!("{items} items are given back"),
    }
}

pub(crate) fn released(was_held: bool) -> String {
    let answer = if was_held { "it is free now" } else { "it was free" };
    answer.to_owned()
}

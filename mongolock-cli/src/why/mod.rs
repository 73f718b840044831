//! `why`: why a lock is not free. Who holds it, what that holder itself waits for, who holds that, and so on.
//!
//! | file | what it has |
//! |---|---|
//! | `chain.rs` | the holders and the waits, and the tree that they form |
//! | `reading.rs` | the queries for them |
//! | `past.rs` | what the server remembers: renewals, and how long the turns before took |
//! | `page.rs` | the lines of the answer, and its JSON |

mod chain;
mod page;
mod past;
mod reading;

use std::time::Duration;

use mongolock::{LockInfo, LockState};
use tokio::time::sleep;

use crate::cli::{ConnectionArguments, WhyArguments};
use crate::exit::Ending;
use crate::failure::Failure;
use crate::notes::Notes;
use crate::output::Output;
use crate::show::{found, no_lock};

/// The time between two readings. The queries of one do not see the same moment, so a circle may be there that never was.
const AGAIN: Duration = Duration::from_millis(1200);

pub(crate) async fn why(
    arguments: WhyArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let collections = connection.collections().await?;
    let admin = collections.provider.admin();
    let locks = found(&admin, &arguments.name).await?;
    if locks.is_empty() {
        return Err(no_lock("", &arguments.name, &collections));
    }
    let is_kept = |lock: &&LockInfo| lock.state != LockState::Held && !lock.remaining.is_zero();
    let kept: Vec<LockInfo> = locks.iter().filter(is_kept).cloned().collect();
    // The waiters stand in one line for all permits.
    let waiters = locks.into_iter().map(|lock| lock.waiters).max_by_key(Vec::len);
    let (mut known, mut names) = reading::read(&collections, &arguments.name).await?;
    if !known.stuck().is_empty() {
        let first = known;
        sleep(AGAIN).await;
        (known, names) = reading::read(&collections, &arguments.name).await?;
        known.confirm(&first);
    }
    let holders = known.holders.values().flatten();
    let lock_ids: Vec<&str> = holders.map(|holder| holder.lock_id.as_str()).collect();
    let notes = Notes::of(&collections.waiters, &lock_ids).await;
    let past = past::read(&admin, &arguments.name, known.now).await;
    let answer = page::Answer {
        name: &arguments.name,
        now: known.now,
        locks: names.iter().map(|name| known.lock(name)).collect(),
        kept,
        waiters: waiters.unwrap_or_default(),
        notes,
        past,
    };
    let mut output = Output::new();
    if arguments.json {
        output.line(answer.json())?;
    } else {
        for line in answer.lines() {
            output.line(line)?;
        }
    }
    output.flush()?;
    Ok(Ending::OK)
}

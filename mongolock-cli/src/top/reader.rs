//! Reads the locks again and again.

use std::time::Duration;

use mongolock::{LockAdmin, LockError, LockFilter};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::sleep;

use super::rows::{Locks, Row};
use crate::failure::Failure;

/// The pause between two reads.
const PAUSE: Duration = Duration::from_secs(1);

/// So many locks are read at most: more fit no screen, and the memory is bounded.
const LIMIT: usize = 10_000;

/// What the reads have found.
pub(super) type Reads = Receiver<Result<Locks, Failure>>;

/// Reads the locks after each pause, in a task of its own, because a request of the driver must not be dropped half way.
pub(super) fn start(admin: LockAdmin, filter: LockFilter) -> Reads {
    let (sender, reads) = channel(1);
    tokio::spawn(async move {
        loop {
            sleep(PAUSE).await;
            if sender.send(read(&admin, filter.clone()).await).await.is_err() {
                return;
            }
        }
    });
    reads
}

/// Reads the locks once.
pub(super) async fn read(admin: &LockAdmin, filter: LockFilter) -> Result<Locks, Failure> {
    let mut stream = admin.stream(filter);
    let mut locks = Locks::default();
    while let Some(found) = stream.next().await {
        match found {
            Ok(_) if locks.rows.len() == LIMIT => {
                locks.is_cut = true;
                break;
            }
            Ok(info) => locks.rows.push(Row::of(&info)),
            // It is a line of `ls`, and a finding of `doctor`.
            Err(LockError::CorruptDocument { .. }) => locks.damaged += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(locks)
}

//! Where the library starts its tasks: the simulation stops and crashes them with the process that they belong to.

use std::time::Duration;

use tokio::task::JoinHandle;

#[cfg(test)]
pub(crate) use crate::simulation::spawn;
use crate::{LockError, fault};
#[cfg(not(test))]
pub(crate) use tokio::spawn;

/// Waits so long for a request that runs on a task of its own; it goes on when nobody waits for it any more.
pub(crate) async fn answer<T>(
    asked: JoinHandle<Result<T, LockError>>,
    request: &str,
    limit: Duration,
) -> Result<T, LockError> {
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ended)) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and the task with it.
            Err(_) => Err(fault::unanswered(request, limit)),
        },
        Err(_) => Err(fault::unanswered(request, limit)),
    }
}

//! Where the library starts its tasks: the simulation stops and crashes them with the process that they belong to.

#[cfg(test)]
pub(crate) use crate::simulation::spawn;
#[cfg(not(test))]
pub(crate) use tokio::spawn;

use std::future::Future;

use tracing::Instrument;

use crate::LockError;

/// Runs a future to its end on a task of its own, whatever becomes of the caller.
pub(crate) async fn to_end<T: Send + 'static>(
    future: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> Result<T, LockError> {
    match spawn(future.in_current_span()).await {
        Ok(outcome) => outcome,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(crate::fault::cut_off()),
        },
    }
}

use std::future::Future;

use crate::timing::ADMIN_REPLY_LIMIT;
use crate::{LockError, task};

/// Sends a request on a task of its own, so that it runs to its end even if the caller is cancelled.
pub(super) async fn request<T: Send + 'static>(
    what: &str,
    command: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> Result<T, LockError> {
    task::limited(ADMIN_REPLY_LIMIT, what, task::start(command)).await
}

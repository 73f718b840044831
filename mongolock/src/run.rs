//! A call under its lock, from the acquisition to the release: the common path of the attribute and of `run`.
//!
//! Nothing here depends on the type of the body, so that it is compiled once and not for each annotated function.
//! [`locked_body`] has the part that does depend on it.

mod call;
mod hold;
mod locked_body;

use std::future::Future;
use std::pin::pin;

pub use call::{Acquired, Acquiring};
pub(crate) use hold::RunningHold;
pub use locked_body::Body;

use crate::{LockContext, LockOutput, output};

/// Runs the body that this function creates, under the lock that this future acquires.
pub(crate) async fn run<B: Future<Output: LockOutput>>(
    acquiring: Acquiring,
    body: impl FnOnce(LockContext) -> B,
) -> B::Output {
    match acquiring.await {
        Ok(acquired) => {
            let body = pin!(Body::new(body(acquired.context())));
            acquired.run(body, output::output()).await
        }
        Err(error) => LockOutput::from_lock_error(error),
    }
}

//! The runtime that a client belongs to.

use std::sync::OnceLock;

use tokio::runtime::Handle;

/// The runtime on which a client was created or first used. The driver's tasks run there and end with it, and after
/// that the client is useless.
#[derive(Default)]
pub(super) struct Home(OnceLock<Handle>);

impl Home {
    /// Notes the caller's runtime, unless one is known.
    pub(super) fn settle(&self) {
        if self.0.get().is_none()
            && let Ok(handle) = Handle::try_current()
        {
            // Another caller may have been faster.
            let _ = self.0.set(handle);
        }
    }

    /// Whether it is another runtime than the caller's, and has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0.get().is_some_and(has_ended)
    }
}

/// Whether it is another runtime than the caller's, and has ended.
pub(crate) fn has_ended(runtime: &Handle) -> bool {
    if Handle::try_current().is_ok_and(|here| here.id() == runtime.id()) {
        return false;
    }
    // A runtime that has ended drops a new task at once.
    let task = runtime.spawn(std::future::pending::<()>());
    let has_ended = task.is_finished();
    task.abort();
    has_ended
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_runtime_that_lives_has_not_ended() {
        let runtime = || Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for first in [runtime(), Builder::new_current_thread().build().unwrap()] {
            let (home, other) = (Home::default(), runtime());
            assert!(!home.has_ended(), "nothing is known");
            first.block_on(async { home.settle() });
            first.block_on(async { assert!(!home.has_ended()) });
            other.block_on(async {
                // The first runtime stays the home.
                home.settle();
                assert!(!home.has_ended());
            });
            assert!(!home.has_ended(), "outside a runtime");
            drop(first);
            assert!(home.has_ended());
            other.block_on(async { assert!(home.has_ended()) });
        }
    }
}

//! Whether a runtime has ended: the driver's tasks run on that on which a client was created or first used.

use tokio::runtime::Handle;

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
            let (home, other) = (first.handle().clone(), runtime());
            first.block_on(async { assert!(!has_ended(&home)) });
            other.block_on(async { assert!(!has_ended(&home)) });
            assert!(!has_ended(&home), "outside a runtime");
            drop(first);
            assert!(has_ended(&home));
            other.block_on(async { assert!(has_ended(&home)) });
        }
    }
}

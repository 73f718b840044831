//! Running async clean-up code from `Drop`.

use std::thread;

/// Runs `task` to its end on a thread and a runtime of its own: `Drop` cannot await, and the runtime of a test that
/// ends may not run anything any more.
pub(crate) fn run_apart<F, T>(task: F) -> Option<T>
where
    F: Future<Output = Option<T>> + Send + 'static,
    T: Send + 'static,
{
    let worker = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.ok()?.block_on(task)
    });
    // Best effort: the thread has printed its panic, and the test has its own result.
    worker.join().ok()?
}

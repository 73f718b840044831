//! The steps that follow from an event, and run when no mutex is held: callers are woken, and events are reported.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use tracing::level_filters::LevelFilter;

use super::reports::EngineReport;
use super::state::SerialQueue;
use crate::home::tell;

thread_local! {
    /// The steps of a thread.
    static STEPS: RefCell<SerialQueue<Deferred>> = const { RefCell::new(SerialQueue::EMPTY) };
}

/// A step that is taken when no mutex is held.
enum Deferred {
    Wake(Waker),
    Report(EngineReport),
}

impl Deferred {
    fn wait(self) {
        let mut step = Some(self);
        let _ = STEPS.try_with(|steps| steps.borrow_mut().waiting.extend(step.take()));
        // A thread that ends has no queue any more, and no subscriber gets its reports.
        if let Some(Self::Wake(waker)) = step {
            waker.wake();
        }
    }
}

/// Wakes these callers at the next [`run`] of this thread.
pub(super) fn wake(wakers: &mut Vec<Waker>) {
    wakers.drain(..).map(Deferred::Wake).for_each(Deferred::wait);
}

/// Reports something at the next [`run`] of this thread, if anything would get it.
pub(super) fn report(report: EngineReport) {
    if cfg!(feature = "metrics") || LevelFilter::current() != LevelFilter::OFF {
        Deferred::Report(report).wait();
    }
}

/// Runs the steps of this thread, and those that follow from them, one after another and never nested: a waker may drop
/// a caller, whose lock then passes to the next caller, and so on, until the stack is full. A panic in one step does not
/// stop the others.
pub(super) fn run() {
    let next = |is_begin| STEPS.try_with(|steps| steps.borrow_mut().next(is_begin));
    let mut step = next(true);
    while let Ok(Some(present)) = step {
        // The caller's runtime or the program's subscriber has reported the panic.
        let _ = catch_unwind(AssertUnwindSafe(|| match present {
            Deferred::Wake(waker) => waker.wake(),
            Deferred::Report(report) => tell(move || report.tell()),
        }));
        step = next(false);
    }
}

//! The steps after an event that run when the core's mutex is released: callers are woken and events are reported.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use tracing::level_filters::LevelFilter;

use crate::home::{Report, tell};

thread_local!(static QUEUE: RefCell<Option<VecDeque<Step>>> = const { RefCell::new(None) });

/// The steps after an event, in this order.
#[derive(Default)]
pub(super) struct After(VecDeque<Step>);

enum Step {
    Wake(Waker),
    Report(Report),
}

impl After {
    pub(super) fn wake(&mut self, wakers: &mut Vec<Waker>) {
        if !wakers.is_empty() {
            self.0.extend(wakers.drain(..).map(Step::Wake));
        }
    }

    /// Reports something, if anything would get it.
    pub(super) fn report(&mut self, report: impl FnOnce() + Send + 'static) {
        if cfg!(feature = "metrics") || LevelFilter::current() != LevelFilter::OFF {
            self.0.push_back(Step::Report(Box::new(report)));
        }
    }

    /// Runs the steps, and the steps that follow from them, one after another and never nested: a waker may drop a
    /// caller, whose lock then passes to the next caller, and so on, until the stack is full. A panic in one step does
    /// not stop the others.
    pub(super) fn run(self) {
        if self.0.is_empty() {
            return;
        }
        let is_inside = QUEUE.with_borrow_mut(|queue| {
            let is_inside = queue.is_some();
            match queue {
                Some(queue) => queue.extend(self.0),
                None => *queue = Some(self.0),
            }
            is_inside
        });
        if is_inside {
            return;
        }
        while let Some(step) = QUEUE.with_borrow_mut(|queue| queue.as_mut().and_then(VecDeque::pop_front)) {
            // The caller's runtime or the program's subscriber has reported the panic.
            let _ = catch_unwind(AssertUnwindSafe(|| match step {
                Step::Wake(waker) => waker.wake(),
                Step::Report(report) => tell(report),
            }));
        }
        QUEUE.set(None);
    }
}

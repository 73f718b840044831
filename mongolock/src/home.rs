//! The thread of a provider that has its own client: nothing in the program's runtimes can stop its renewals.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::level_filters::LevelFilter;

use crate::LockError;

/// The number of events that wait for a slow subscriber. Those beyond it are not reported.
const MOST_REPORTS: usize = 10_000;

/// Tells the program's subscriber and recorder what has happened.
type ReportTask = Box<dyn FnOnce() + Send>;

thread_local! {
    /// On the thread of a provider: the other thread that reports its events. It starts with the first report.
    static REPORTER: RefCell<Option<Reporter>> = const { RefCell::new(None) };
}

/// The channel to the thread that reports events; `None` before the first report.
#[derive(Default)]
struct Reporter(Option<SyncSender<ReportTask>>);

/// A runtime on a thread of its own. The thread ends when this is dropped; the drop does not wait for it.
pub(crate) struct Home {
    handle: Handle,
    _ends: oneshot::Sender<()>,
}

impl Home {
    pub(crate) fn start() -> Result<Self, LockError> {
        let failed = |error: io::Error| LockError::Mongo(error.into());
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let run = move || {
            REPORTER.set(Some(Reporter::default()));
            // An error means that the sender was dropped.
            let _ = runtime.block_on(ended);
        };
        let thread = thread::Builder::new().name("mongolock".to_owned());
        thread.spawn(run).map_err(failed)?;
        Ok(Self { handle, _ends: ends })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Whether the caller runs on the thread of a provider, which must not wait.
pub(crate) fn is_home() -> bool {
    // A thread that ends may have none any more.
    REPORTER.try_with(|reporter| reporter.borrow().is_some()) == Ok(true)
}

/// Reports something. The thread of a provider never waits for the program's subscriber: renewals are sent there.
pub(crate) fn tell(report: impl FnOnce() + Send + 'static) {
    let is_silent = LevelFilter::current() == LevelFilter::OFF;
    let here = REPORTER.with_borrow_mut(|reporter| match reporter {
        Some(reporter) if !is_silent => reporter.pass(report),
        _ => Some(report),
    });
    if let Some(report) = here {
        report();
    }
}

impl Reporter {
    /// Passes a report to the other thread, or returns it if that thread cannot be started.
    fn pass<F: FnOnce() + Send + 'static>(&mut self, report: F) -> Option<F> {
        if self.0.is_none() {
            let (reports, passed) = sync_channel::<ReportTask>(MOST_REPORTS);
            let run = move || {
                for report in passed {
                    // The subscriber has reported the panic.
                    let _ = catch_unwind(AssertUnwindSafe(report));
                }
            };
            let started = thread::Builder::new()
                .name("mongolock-events".to_owned())
                .spawn(run);
            if started.is_err() {
                return Some(report);
            }
            self.0 = Some(reports);
        }
        // The queue is full if the subscriber blocks.
        let _ = self.0.as_ref()?.try_send(Box::new(report));
        None
    }
}

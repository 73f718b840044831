//! The thread of a provider that has made its client: nothing in the program's runtimes stops its renewals.

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
pub(crate) type Report = Box<dyn FnOnce() + Send>;

thread_local! {
    /// On the thread of a provider: what it has to report goes to another thread, which begins with the first report.
    static REPORTER: RefCell<Option<Reporter>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Reporter(Option<SyncSender<Report>>);

/// A runtime on a thread of its own. The thread ends when this is dropped, and nobody waits for that.
pub(crate) struct Home {
    handle: Handle,
    _ends: oneshot::Sender<()>,
}

impl Home {
    pub(crate) fn start() -> Result<Self, LockError> {
        let failed = |error: io::Error| LockError::Mongo(error.into());
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let run = move || {
            REPORTER.set(Some(Reporter::default()));
            // An error says that the other half was dropped.
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
    REPORTER
        .try_with(|reporter| reporter.borrow().is_some())
        .unwrap_or(false)
}

/// Reports something. The thread of a provider never waits for the program's subscriber: renewals are sent there.
pub(crate) fn tell(report: Report) {
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
    /// Has another thread report it, or gives it back if there can be none.
    fn pass(&mut self, report: Report) -> Option<Report> {
        if self.0.is_none() {
            let (reports, passed) = sync_channel::<Report>(MOST_REPORTS);
            let run = move || {
                for report in passed {
                    // The subscriber says what has gone wrong there.
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
        // It is full if the subscriber blocks.
        let _ = self.0.as_ref()?.try_send(report);
        None
    }
}

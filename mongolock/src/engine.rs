use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tracing::Instrument;

use crate::index_task::IndexTask;
use crate::lease::Queues;
use crate::lease::renewer::Renewer;
use crate::line::Lines;
use crate::notifier::ReleaseNotifier;
use crate::options::Config;
use crate::store::{ProviderMark, Store};
use crate::sync::lock;
use crate::timing::SHUTDOWN_LIMIT;

/// The largest number of names whose calls are reported for coming close to a boundary between two periods.
const MOST_WARNINGS: usize = 1000;

/// What all clones of a provider, its locks and its leases share.
pub(crate) struct Engine {
    pub(crate) store: Arc<Store>,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) notifier: Arc<ReleaseNotifier>,
    pub(crate) lines: Arc<Lines>,
    index_task: IndexTask,
    pub(crate) config: Config,
    pub(crate) owner: Arc<str>,
    /// The mark of this provider, which is in the id of each of its claims.
    pub(crate) mark: ProviderMark,
    /// The names whose calls came close to a boundary between two periods, each of which has a warning.
    warned: Mutex<HashSet<Arc<str>>>,
    /// Whether the provider is shut down.
    closed: AtomicBool,
    /// Notified when a shutdown begins.
    closing: Notify,
}

impl Engine {
    pub(crate) fn new(store: Store, config: Config, owner: Arc<str>) -> Self {
        let store = Arc::new(store);
        let mark = ProviderMark::random();
        let lines = Lines::new(Arc::clone(&store), mark.clone(), Arc::clone(&owner), config.fair);
        let lines = Arc::new(lines);
        let (renewer, queues) = (
            Renewer::new(Arc::clone(&store), Arc::clone(&lines)),
            Queues::new(),
        );
        let notifier = ReleaseNotifier::new(
            Arc::clone(&store),
            Arc::clone(&lines),
            Arc::clone(&renewer.given_up),
            Arc::clone(&queues.overdue),
            &config,
        );
        Self {
            renewer: Arc::new(renewer),
            notifier: Arc::new(notifier),
            index_task: IndexTask::new(Arc::clone(&store), config.ttl_options()),
            store,
            queues,
            config,
            owner,
            mark,
            lines,
            warned: Mutex::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    /// Starts the background tasks on the caller's runtime if they do not run.
    pub(crate) fn ensure_running(&self) {
        self.renewer.ensure_running();
        self.index_task.ensure_running();
    }

    /// Has this provider enter the lines of names that it acquires again and again while others wait for them.
    pub(crate) fn enter_retaken(self: &Arc<Self>) {
        let engine = Arc::clone(self);
        let entering = async move {
            for name in engine.lines.read_retaken().await {
                let user = engine.queues.join(&name).user();
                engine
                    .lines
                    .enter(&name, user, engine.notifier.expects_stream(), None);
                engine.notifier.listen();
            }
        };
        crate::task::spawn(entering.in_current_span());
    }

    /// Whether there was no warning about this name yet; at most [`MOST_WARNINGS`] names get one.
    pub(crate) fn is_first_warning(&self, name: &Arc<str>) -> bool {
        let mut warned = lock(&self.warned);
        warned.len() < MOST_WARNINGS && warned.insert(Arc::clone(name))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) async fn until_closed(&self) {
        let closing = self.closing.notified();
        if !self.is_closed() {
            closing.await;
        }
    }

    /// Rejects waiters, ends all leases, and waits until the server has confirmed the releases. The tasks end even if the
    /// future is dropped before.
    pub(crate) async fn shut_down(&self) {
        let _stopping = Stopping(self);
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        self.renewer.ensure_running();
        self.renewer.end_leases();
        let released = tokio::time::timeout(SHUTDOWN_LIMIT, self.queues.until_idle());
        let _ = tokio::join!(released, self.lines.leave_all());
    }

    fn stop(&self) {
        self.renewer.stop();
        self.index_task.stop();
        self.notifier.stop();
    }
}

/// Ends the tasks of a provider that is shut down.
struct Stopping<'a>(&'a Engine);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

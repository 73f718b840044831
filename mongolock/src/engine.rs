use std::any::Any;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::LockError;
use crate::backoff::Backoff;
use crate::index_task::IndexTask;
use crate::lease::renewer::Renewer;
use crate::lease::{Entry, Lease, OpenCommit, Queues};
use crate::line::{Lines, OwnAcquisition};
use crate::machine::Home;
use crate::meter::Meter;
use crate::notifier::ReleaseNotifier;
use crate::options::Config;
use crate::probe::Probe;
use crate::store::{ProviderMark, Store};
use crate::sync::lock;
use crate::timing::SHUTDOWN_LIMIT;

/// The largest number of names for which a provider has warnings that are reported once for each name.
const MOST_WARNINGS: usize = 1000;

/// What all clones of a provider, its locks and its leases share.
pub(crate) struct Engine {
    pub(crate) store: Arc<Store>,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) notifier: Arc<ReleaseNotifier>,
    pub(crate) lines: Arc<Lines>,
    pub(crate) index_task: IndexTask,
    pub(crate) probe: Probe,
    pub(crate) config: Config,
    pub(crate) owner: Arc<str>,
    /// The mark of this provider, which is in the id of each of its claims.
    pub(crate) mark: ProviderMark,
    pub(crate) meter: Meter,
    /// The names that have had their warning: calls close to a boundary between two periods, and semaphores with different
    /// numbers of permits.
    warned: Mutex<HashSet<Arc<str>>>,
    /// The number of calls that wait for a lock.
    waiting: AtomicUsize,
    /// What every guard keeps alive: the thread of a blocking provider.
    keeper: OnceLock<Weak<dyn Any + Send + Sync>>,
    /// The present [`Phase`].
    phase: AtomicU8,
    /// Notified when a phase begins.
    phase_changed: Notify,
}

/// Which acquires a provider accepts.
#[derive(Clone, Copy)]
enum Phase {
    Open,
    /// Only acquires inside a hold of this provider go on, because the body of that hold needs them to end.
    Draining,
    Closed,
}

impl Engine {
    pub(crate) fn new(store: Store, config: Config, owner: Arc<str>, _: Option<Arc<Home>>) -> Self {
        let store = Arc::new(store);
        let mark = ProviderMark::random();
        let lines = Lines::new(Arc::clone(&store), mark.clone(), Arc::clone(&owner));
        let lines = Arc::new(lines);
        let (renewer, queues) = (
            Renewer::new(Arc::clone(&store), Arc::clone(&lines)),
            Queues::new(),
        );
        let notifier = ReleaseNotifier::new(
            Arc::clone(&store),
            Arc::clone(&lines),
            Arc::clone(&renewer.given_up),
            &config,
        );
        Self {
            renewer: Arc::new(renewer),
            notifier: Arc::new(notifier),
            index_task: IndexTask::new(Arc::clone(&store), config.ttl_options()),
            probe: Probe::new(Arc::clone(&store)),
            store,
            queues,
            config,
            owner,
            mark,
            lines,
            meter: Meter::new(),
            warned: Mutex::default(),
            waiting: AtomicUsize::new(0),
            keeper: OnceLock::new(),
            phase: AtomicU8::new(Phase::Open as u8),
            phase_changed: Notify::new(),
        }
    }

    /// Has every guard from now on keep this alive.
    pub(crate) fn keep_while_held(&self, keeper: Weak<dyn Any + Send + Sync>) {
        // An error says that a keeper is set: there is one for each provider.
        let _ = self.keeper.set(keeper);
    }

    /// What a guard keeps alive.
    pub(crate) fn keeper(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.keeper.get()?.upgrade()
    }

    /// Starts the background tasks on the caller's runtime if they do not run.
    pub(crate) fn ensure_running(&self) {
        self.renewer.ensure_running();
        self.index_task.ensure_running();
    }

    /// Notes for the order of the waiters, in this process and in others, that a request that took this time has acquired the
    /// locks of these queues.
    pub(crate) fn note_acquisition(
        self: &Arc<Self>,
        entries: &[Arc<Entry>],
        now: Instant,
        request: Duration,
    ) {
        let mut reacquired = false;
        for entry in entries {
            entry.budget().begin_row(now, request, entry.waiting());
            let acquired = || OwnAcquisition {
                request,
                waiting_since: entry.waiting_since(),
                user: entry.user(),
                has_stream: self.notifier.hears_of(entry.name()),
            };
            reacquired |= self.lines.acquired(entry.name(), acquired);
        }
        if reacquired {
            self.enter_reacquired();
        }
    }

    /// Has this provider enter the lines of names that it acquires again and again while others wait for them.
    fn enter_reacquired(self: &Arc<Self>) {
        let engine = Arc::clone(self);
        let entering = async move {
            for name in engine.lines.read_reacquired().await {
                let user = engine.queues.join(&name).user();
                engine
                    .lines
                    .enter(&name, user, 1, engine.notifier.expects_stream(), None);
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

    /// Notes that a commit begins under the hold.
    #[expect(clippy::unused_self, reason = "the other machine needs it")]
    pub(crate) fn begin_commit<'a>(&self, lease: &'a Lease, _marks: bool) -> OpenCommit<'a> {
        lease.begin_commit()
    }

    /// Notes that a commit begins that marks the work; `false` if the hold is over.
    #[expect(clippy::unused_self, reason = "the other machine needs it")]
    pub(crate) fn begins_end(&self, lease: &Lease) -> bool {
        lease.begin_commit_with_end()
    }

    /// A guarding statement has found no claim.
    #[expect(clippy::unused_self, reason = "the other machine needs it")]
    pub(crate) fn claim_is_gone(&self, lease: &Lease) {
        lease.claim_is_gone();
    }

    /// A commit that marks the work has ended. Returns whether it was made although its outcome was unknown.
    pub(crate) fn commit_ended(
        &self,
        lease: &Arc<Lease>,
        committed: &Result<Result<(), LockError>, LockError>,
    ) -> impl Future<Output = bool> + Send + Sync {
        match committed {
            Ok(_) => self.renewer.committed(lease),
            Err(_) if lease.may_commit() => self.renewer.go_on(lease),
            Err(_) => self.renewer.resume(lease),
        }
        std::future::ready(false)
    }

    /// The holds of this provider.
    pub(crate) fn held(&self) -> Vec<Arc<Lease>> {
        self.renewer.held()
    }

    /// Renews the hold of this lock at once, or all: an operator of this process has released locks by force.
    pub(crate) fn renew_now(&self, name: Option<&str>) {
        let is_it = |lease: &Lease| name.is_none_or(|name| lease.token_of(name).is_some());
        self.renewer.renew_now(is_it);
    }

    /// The time since a renewal was confirmed.
    pub(crate) fn last_renewal(&self) -> Option<Duration> {
        self.renewer.last_renewal().map(|at| at.elapsed())
    }

    /// Whether a change stream is open.
    pub(crate) fn is_listening(&self) -> bool {
        self.notifier.is_open()
    }

    /// The pauses of a call between its requests.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.config.retry_interval.clone())
    }

    /// Counts a call that waits for a lock.
    pub(crate) fn wait_begins(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wait_ends(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of calls that wait for a lock.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether the provider is shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.has_begun(Phase::Closed)
    }

    /// Whether an acquire is refused, which may be inside a hold of this provider.
    pub(crate) fn refuses(&self, is_inside_hold: bool) -> bool {
        self.has_begun(refusing(is_inside_hold))
    }

    /// Resolves when an acquire is refused.
    pub(crate) async fn until_refused(&self, is_inside_hold: bool) {
        loop {
            let changed = self.phase_changed.notified();
            if self.refuses(is_inside_hold) {
                return;
            }
            changed.await;
        }
    }

    /// Rejects waiters, ends all leases, and waits until the server has confirmed the releases; without a grace period also while
    /// leases last whose marks are not confirmed. With one, the holds get that time to end by themselves, with the locks that they
    /// need. If the future is dropped, the leases end at once, and so do the tasks.
    pub(crate) async fn shut_down(&self, grace: Option<Duration>) {
        let _stopping = Stopping(self);
        if let Some(grace) = grace {
            self.enter(Phase::Draining);
            let _ = timeout(grace, self.queues.until_idle()).await;
        }
        self.close();
        let released = timeout(SHUTDOWN_LIMIT, self.queues.until_idle());
        let _ = tokio::join!(released, self.lines.leave_all());
        // A mark that was refused is followed by a release.
        if grace.is_none() && self.renewer.until_marked().await {
            let _ = timeout(SHUTDOWN_LIMIT, self.queues.until_idle()).await;
        }
        self.stop();
        self.store.close().await;
    }

    /// Ends all leases, and has their claims released.
    fn close(&self) {
        self.enter(Phase::Closed);
        self.renewer.ensure_running();
        self.renewer.close();
    }

    fn has_begun(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    /// Enters a phase, unless a later one has begun.
    fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.phase_changed.notify_waiters();
    }

    fn stop(&self) {
        self.renewer.stop();
        self.index_task.stop();
        self.notifier.stop();
    }
}

/// The first phase in which an acquire is refused.
fn refusing(is_inside_hold: bool) -> Phase {
    if is_inside_hold {
        Phase::Closed
    } else {
        Phase::Draining
    }
}

/// Ends the leases and the tasks of a provider whose shutdown is dropped before its end.
struct Stopping<'a>(&'a Engine);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            self.0.enter(Phase::Closed);
            self.0.renewer.close();
        }
        self.0.stop();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

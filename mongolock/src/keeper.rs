use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::index;
use crate::lease::Lease;
use crate::renewal;
use crate::schedule::{self, Schedule};
use crate::store::Store;
use crate::sync::lock;
use crate::trace::Loss;
use crate::withdrawal::{self, Withdrawal};

/// A failed renewal is repeated after this time, while the lease lasts.
const RETRY_RENEWAL: Duration = Duration::from_millis(250);

/// The background task of a provider: renews leases, ends those that nobody confirmed, and withdraws claims that
/// were dropped. It starts with the first acquire and needs no runtime before that.
pub(crate) struct Keeper {
    store: Arc<Store>,
    retention: Duration,
    agenda: Mutex<Agenda>,
    wake: Notify,
    /// Withdrawals that are repeated after a silence.
    pub(crate) repeats: Semaphore,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Agenda {
    schedule: Schedule,
    withdrawals: Vec<Withdrawal>,
    /// When the task wakes up by itself; a lease that is due later need not wake it.
    wakes_at: Option<Instant>,
    /// No lease is kept any more.
    closing: bool,
    stopped: bool,
}

/// What the task does in one round.
struct Round {
    over: Vec<Arc<Lease>>,
    renewals: Vec<Vec<Arc<Lease>>>,
    withdrawals: Vec<Vec<Withdrawal>>,
    next: Option<Instant>,
    last: bool,
}

impl Keeper {
    pub(crate) fn new(store: Arc<Store>, retention: Duration) -> Self {
        Self {
            store,
            retention,
            agenda: Mutex::default(),
            wake: Notify::new(),
            repeats: Semaphore::new(withdrawal::REPEATS),
            task: Mutex::new(None),
        }
    }

    /// Starts the task on the caller's runtime if it does not run, or ended with the runtime it was started on.
    pub(crate) fn ensure_running(self: &Arc<Self>) {
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(crate::task::spawn(run(Arc::clone(self))));
        }
    }

    /// Keeps a lease renewed; `false` when the provider is shut down.
    pub(crate) fn keep(&self, lease: Arc<Lease>) -> bool {
        let mut agenda = lock(&self.agenda);
        if agenda.closing {
            return false;
        }
        let at = agenda.schedule.insert(lease);
        if agenda.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            self.wake.notify_one();
        }
        true
    }

    pub(crate) fn forget(&self, lease: &Arc<Lease>) {
        lock(&self.agenda).schedule.remove(lease);
    }

    /// Takes claims back in the background. Needs no runtime: without one they wait for the next acquire or shutdown.
    pub(crate) fn withdraw(self: &Arc<Self>, withdrawals: Vec<Withdrawal>) {
        let has_runtime = Handle::try_current().is_ok();
        let mut agenda = lock(&self.agenda);
        if !agenda.stopped {
            agenda.withdrawals.extend(withdrawals);
            drop(agenda);
            self.wake.notify_one();
            if has_runtime {
                self.ensure_running();
            }
        } else if has_runtime {
            drop(agenda);
            // The task has made its last round.
            for claims in withdrawal::batches(withdrawals) {
                crate::task::spawn(withdrawal::withdraw(Arc::clone(self), claims));
            }
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Plans the next renewal of leases that were renewed together: together again.
    pub(crate) fn renewed(&self, leases: &[Arc<Lease>]) {
        let part = 1.0 - schedule::jitter();
        self.replan(leases, |lease| schedule::next_renewal(lease, part));
    }

    pub(crate) fn renewal_failed(&self, leases: &[Arc<Lease>]) {
        let (now, late) = (Instant::now(), 1.0 + schedule::jitter());
        self.replan(leases, |lease| {
            now + RETRY_RENEWAL.min(lease.terms.renew_interval / 2).mul_f64(late)
        });
    }

    /// Asks for a renewal of these leases at once: it finds out which of them have been ended at the server.
    pub(crate) fn renew_now(&self, concerned: impl Fn(&Lease) -> bool) {
        let leases = lock(&self.agenda).schedule.leases(concerned);
        let now = Instant::now();
        self.replan(&leases, |_| now);
    }

    fn replan(&self, leases: &[Arc<Lease>], renewal: impl Fn(&Lease) -> Instant) {
        let mut agenda = lock(&self.agenda);
        for lease in leases {
            agenda.schedule.replan(lease, renewal(lease));
        }
        self.wake.notify_one();
    }

    /// Ends a lease whose deadline has passed.
    fn end(self: &Arc<Self>, lease: &Arc<Lease>) {
        // Looking makes it final and tells everybody.
        if !lease.is_over() {
            // A renewal was confirmed this very moment. In a shutdown nobody else ends it.
            if !self.keep(Arc::clone(lease)) {
                let withdrawal = Withdrawal::of_lease(lease);
                lease.lose(Loss::ShutDown);
                self.withdraw(vec![withdrawal]);
            }
        } else if lease.is_lost() && lease.may_stand() {
            self.withdraw(vec![Withdrawal::of_expired(lease)]);
        }
    }

    /// Ends every lease and has its claim withdrawn, at once.
    pub(crate) fn end_leases(self: &Arc<Self>) {
        let leases = {
            let mut agenda = lock(&self.agenda);
            agenda.closing = true;
            let now = Instant::now();
            for withdrawal in agenda.withdrawals.iter_mut().filter(|w| w.is_awaited()) {
                withdrawal.at = now;
            }
            agenda.schedule.drain()
        };
        let mut withdrawals = Vec::with_capacity(leases.len());
        for lease in leases {
            withdrawals.push(Withdrawal::of_lease(&lease));
            lease.lose(Loss::ShutDown);
        }
        self.withdraw(withdrawals);
    }

    /// Lets the task make a last round, in which it starts every withdrawal that is left; late ones wait by themselves.
    pub(crate) fn stop(&self) {
        lock(&self.agenda).stopped = true;
        self.wake.notify_one();
    }

    /// Whether there is nothing to renew and nothing to withdraw.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let agenda = lock(&self.agenda);
        agenda.schedule.next().is_none() && agenda.withdrawals.is_empty()
    }

    fn round(&self) -> Round {
        let now = Instant::now();
        let mut agenda = lock(&self.agenda);
        let due = agenda.schedule.take_due(now);
        let last = agenda.stopped;
        let withdrawals = agenda
            .withdrawals
            .extract_if(.., |w| last || w.at <= now)
            .collect();
        let next = agenda
            .withdrawals
            .iter()
            .map(|w| w.at)
            .chain(agenda.schedule.next())
            .min();
        agenda.wakes_at = next;
        drop(agenda);
        Round {
            over: due.over,
            renewals: renewal::batches(due.renew),
            withdrawals: withdrawal::batches(withdrawals),
            next,
            last,
        }
    }
}

async fn run(keeper: Arc<Keeper>) {
    let mut tidying = None;
    loop {
        let round = keeper.round();
        for lease in round.over {
            keeper.end(&lease);
        }
        for leases in round.renewals {
            crate::task::spawn(renewal::renew(Arc::clone(&keeper), leases));
        }
        for claims in round.withdrawals {
            crate::task::spawn(withdrawal::withdraw(Arc::clone(&keeper), claims));
        }
        if round.last {
            tidying.inspect(JoinHandle::abort);
            return;
        }
        tidying.get_or_insert_with(|| {
            crate::task::spawn(index::ensure(Arc::clone(&keeper.store), keeper.retention))
        });
        wait_until(round.next, &keeper.wake).await;
    }
}

async fn wait_until(at: Option<Instant>, wake: &Notify) {
    match at {
        Some(at) => drop(tokio::time::timeout_at(at, wake.notified()).await),
        None => wake.notified().await,
    }
}

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Hold, Kept, Lease, LossReason, margin};
use crate::lease::background_release::{self, Withdrawal};
use crate::lease::given_up::GivenUp;
use crate::lease::renewal;
use crate::lease::schedule::{self, Schedule};
use crate::store::Store;
use crate::sync::lock;
use crate::timing::RENEWAL_RETRY;

/// The background task of a provider: renews leases, ends those that nobody confirmed, and withdraws claims that
/// were dropped. It starts with the first acquire and needs no runtime before that.
pub(crate) struct Keeper {
    store: Arc<Store>,
    agenda: Mutex<Agenda>,
    wake: Notify,
    /// Releases of single claims that are under way again after a failure.
    pub(crate) repeats: Semaphore,
    pub(crate) given_up: Arc<GivenUp>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Agenda {
    schedule: Schedule,
    /// By the time at which they are due; the number keeps those of one time apart.
    withdrawals: BTreeMap<(Instant, u64), Withdrawal>,
    last_withdrawal: u64,
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
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            agenda: Mutex::default(),
            wake: Notify::new(),
            repeats: Semaphore::new(background_release::REPEATS),
            given_up: Arc::default(),
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

    /// Keeps a lease renewed for as long as it is held; a lease that begins in a shutdown is lost at once.
    pub(crate) fn hold(self: &Arc<Self>, lease: Lease) -> Hold {
        let lease = Arc::new(lease);
        if !self.keep(Arc::clone(&lease)) {
            lease.end(LossReason::ShutDown);
        }
        Hold::new(lease, Arc::clone(self))
    }

    pub(super) fn is_closing(&self) -> bool {
        lock(&self.agenda).closing
    }

    /// `false` when the provider is shut down.
    fn keep(&self, lease: Arc<Lease>) -> bool {
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
    pub(crate) fn withdraw(self: &Arc<Self>, mut withdrawals: Vec<Withdrawal>) {
        let has_runtime = Handle::try_current().is_ok();
        for withdrawal in &mut withdrawals {
            withdrawal.announce(&self.given_up);
        }
        let mut agenda = lock(&self.agenda);
        if !agenda.stopped {
            agenda.add(withdrawals);
            drop(agenda);
            self.wake.notify_one();
            if has_runtime {
                self.ensure_running();
            }
        } else if has_runtime {
            drop(agenda);
            // The task has made its last round.
            for claims in background_release::batches(withdrawals) {
                crate::task::spawn(background_release::withdraw(Arc::clone(self), claims));
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

    /// Repeats a renewal soon; if one of the documents is blocked, in smaller groups, and at once unless the lease was
    /// alone already.
    pub(crate) fn renewal_failed(&self, leases: &[Arc<Lease>], is_blocked: bool) {
        let (now, late) = (Instant::now(), 1.0 + schedule::jitter());
        let soon = |lease: &Lease| now + RENEWAL_RETRY.min(lease.terms.renew_interval / 2).mul_f64(late);
        if is_blocked {
            let is_group = leases.len() > 1;
            let at = |lease: &Lease| if is_group { now } else { soon(lease) };
            lock(&self.agenda).schedule.split(leases, at);
            self.wake.notify_one();
        } else {
            self.replan(leases, soon);
        }
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
        if lease.expire() {
            if lease.may_stand() {
                let end = Instant::now() + margin(lease.terms.expiry);
                lease.claim_ends();
                let release = Withdrawal::of_lease(lease, lease.take_kept());
                // The next in this process need not wait for that.
                self.withdraw(vec![release.without_turn().unused_from(end)]);
            }
        } else if lease.deadline().is_some() && !self.keep(Arc::clone(lease)) {
            // A renewal was confirmed this very moment. In a shutdown nothing else ends it.
            self.end_at_shutdown(lease);
        }
    }

    /// Ends every lease and has its claim released, at once.
    pub(crate) fn end_leases(self: &Arc<Self>) {
        let leases = {
            let mut agenda = lock(&self.agenda);
            agenda.closing = true;
            agenda.hasten_awaited();
            agenda.schedule.drain()
        };
        for lease in leases {
            self.end_at_shutdown(&lease);
        }
        self.wake.notify_one();
    }

    /// The turn stays with the release: the shutdown waits for it.
    fn end_at_shutdown(self: &Arc<Self>, lease: &Arc<Lease>) {
        let kept = lease.take_kept();
        lease.end(LossReason::ShutDown);
        self.release_claim(lease, kept);
    }

    /// Releases the claim of a lease that has ended, in the background.
    pub(super) fn release_claim(self: &Arc<Self>, lease: &Lease, kept: Kept) {
        lease.claim_ends();
        self.withdraw(vec![Withdrawal::of_lease(lease, kept)]);
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
        let withdrawals = agenda.take_withdrawals(now);
        let first = agenda.withdrawals.keys().next().map(|(at, _)| *at);
        let next = first.into_iter().chain(agenda.schedule.next()).min();
        agenda.wakes_at = next;
        drop(agenda);
        Round {
            over: due.over,
            renewals: renewal::batches(due.renew),
            withdrawals: background_release::batches(withdrawals),
            next,
            last,
        }
    }
}

impl Agenda {
    fn add(&mut self, withdrawals: Vec<Withdrawal>) {
        for withdrawal in withdrawals {
            self.last_withdrawal += 1;
            self.withdrawals
                .insert((withdrawal.at, self.last_withdrawal), withdrawal);
        }
    }

    /// Those that are due, or all of them in the last round. Late releases that have become needless are left out.
    fn take_withdrawals(&mut self, now: Instant) -> Vec<Withdrawal> {
        let due = if self.stopped {
            std::mem::take(&mut self.withdrawals)
        } else {
            let later = self.withdrawals.split_off(&(now, u64::MAX));
            std::mem::replace(&mut self.withdrawals, later)
        };
        due.into_values().filter(|w| !w.is_settled()).collect()
    }

    /// A shutdown waits for these: they do not wait for their time.
    fn hasten_awaited(&mut self) {
        let now = Instant::now();
        let all = std::mem::take(&mut self.withdrawals).into_values();
        let hastened = all.map(|w| if w.is_awaited() { w.due_at(now) } else { w });
        self.add(hastened.collect());
    }
}

async fn run(keeper: Arc<Keeper>) {
    loop {
        let round = keeper.round();
        for lease in round.over {
            keeper.end(&lease);
        }
        for leases in round.renewals {
            crate::task::spawn(renewal::renew(Arc::clone(&keeper), leases));
        }
        for claims in round.withdrawals {
            crate::task::spawn(background_release::withdraw(Arc::clone(&keeper), claims));
        }
        if round.last {
            return;
        }
        wait_until(round.next, &keeper.wake).await;
    }
}

async fn wait_until(at: Option<Instant>, wake: &Notify) {
    match at {
        Some(at) => drop(tokio::time::timeout_at(at, wake.notified()).await),
        None => wake.notified().await,
    }
}

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lease::{ClaimKey, Lease};
use crate::queue::Kept;
use crate::renewal::BATCH;
use crate::store::Store;
use crate::{fault, trace};

/// A request that was under way when its sender gave up can reach the server this much later.
const LATE_REQUEST: Duration = Duration::from_secs(5);

/// A claim that nobody wants any more, to be taken back in the background.
pub(crate) struct Withdrawal {
    pub(crate) key: ClaimKey,
    pub(crate) min_hold: Duration,
    pub(crate) at: Instant,
    /// The claim has ended by itself by then.
    pub(crate) until: Instant,
    /// Given up once the server has been told.
    pub(crate) kept: Kept,
}

impl Withdrawal {
    /// Takes back the claim of a lease that has ended. If an earlier request of it may still be on its way, it is
    /// taken back once more when that must have arrived.
    pub(crate) fn of_lease(lease: &Lease) -> Self {
        let now = Instant::now();
        if lease.is_haunted() {
            let late = Self::late(lease.key.clone(), lease.terms.expiry);
            lease.engine.keeper.withdraw(late);
        }
        let until = now + lease.terms.expiry;
        Self {
            key: lease.key.clone(),
            min_hold: lease.min_hold(),
            at: now,
            until,
            kept: lease.take_kept(),
        }
    }

    /// Takes back what a request that was under way when its sender gave up may do later.
    pub(crate) fn late(key: ClaimKey, expiry: Duration) -> Self {
        let at = Instant::now() + LATE_REQUEST;
        Self {
            key,
            min_hold: Duration::ZERO,
            at,
            until: at + expiry,
            kept: Kept::Nothing,
        }
    }
}

/// Withdrawals that one command can make: of one minimum hold, at one moment.
pub(crate) fn batches(withdrawals: Vec<Withdrawal>) -> Vec<Vec<Withdrawal>> {
    let now = Instant::now();
    let mut groups: BTreeMap<(Duration, Instant), Vec<Withdrawal>> = BTreeMap::new();
    for withdrawal in withdrawals {
        groups
            .entry((withdrawal.min_hold, withdrawal.at.max(now)))
            .or_default()
            .push(withdrawal);
    }
    let mut batches = Vec::new();
    for mut group in groups.into_values() {
        while group.len() > BATCH {
            batches.push(group.split_off(group.len() - BATCH));
        }
        batches.push(group);
    }
    batches
}

/// Takes claims back with one command when they are due, and again after an error while one of them may stand.
pub(crate) async fn withdraw(store: Arc<Store>, mut withdrawals: Vec<Withdrawal>) {
    let Some(first) = withdrawals.first() else {
        return;
    };
    let (min_hold, at) = (first.min_hold, first.at);
    let until = withdrawals.iter().map(|w| w.until).max().unwrap_or(at);
    let keys: Vec<ClaimKey> = withdrawals.iter().map(|w| w.key.clone()).collect();
    let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_secs(2));
    tokio::time::sleep_until(at).await;
    while let Err(error) = store.release_many(&keys, min_hold).await {
        // The next in this process has to hear for himself that the server does not answer.
        withdrawals = withdrawals
            .into_iter()
            .map(|w| Withdrawal {
                kept: w.kept.without_turn(),
                ..w
            })
            .collect();
        let pause = backoff.next();
        if fault::is_refusal(&error) || Instant::now() + pause >= until {
            trace::release_failed(&keys, &error);
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

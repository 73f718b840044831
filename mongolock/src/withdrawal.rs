use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lease::{ClaimKey, Lease};
use crate::queue::{Place, Turn};
use crate::renewal::BATCH;
use crate::store::Store;
use crate::trace;

/// A claim that nobody wants any more, to be taken back in the background.
pub(crate) struct Withdrawal {
    pub(crate) key: ClaimKey,
    pub(crate) min_hold: Duration,
    pub(crate) at: Instant,
    /// The claim has ended by itself by then.
    pub(crate) until: Instant,
    /// Given on to the next in this process once the server has been told.
    pub(crate) _turn: Option<Turn>,
    /// Kept until then, so that a shutdown waits for it.
    pub(crate) _place: Option<Arc<Place>>,
}

impl Withdrawal {
    pub(crate) fn of_lease(lease: &Lease) -> Self {
        let now = Instant::now();
        Self {
            key: lease.key.clone(),
            min_hold: lease.terms.min_hold,
            at: now,
            until: now + lease.terms.expiry,
            _turn: lease.take_turn(),
            _place: None,
        }
    }
}

/// Withdrawals that one command can make.
pub(crate) fn batches(withdrawals: Vec<Withdrawal>) -> Vec<Vec<Withdrawal>> {
    let mut by_min_hold: BTreeMap<Duration, Vec<Withdrawal>> = BTreeMap::new();
    for withdrawal in withdrawals {
        by_min_hold
            .entry(withdrawal.min_hold)
            .or_default()
            .push(withdrawal);
    }
    let mut batches = Vec::new();
    for mut group in by_min_hold.into_values() {
        while group.len() > BATCH {
            batches.push(group.split_off(group.len() - BATCH));
        }
        batches.push(group);
    }
    batches
}

/// Takes claims back with one command, and again after an error while one of them may stand.
pub(crate) async fn withdraw(store: Arc<Store>, withdrawals: Vec<Withdrawal>) {
    let Some(first) = withdrawals.first() else { return };
    let min_hold = first.min_hold;
    let until = withdrawals.iter().map(|w| w.until).max().unwrap_or(first.until);
    let keys: Vec<ClaimKey> = withdrawals.iter().map(|w| w.key.clone()).collect();
    let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_secs(2));
    while let Err(error) = store.release_many(&keys, min_hold).await {
        let pause = backoff.next();
        if Instant::now() + pause >= until {
            trace::release_failed(&keys, &error);
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

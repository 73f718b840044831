use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::keeper::Keeper;
use crate::lease::{ClaimKey, Lease};
use crate::trace::{self, Loss};

/// Claims in one command: larger commands cost the same, but other writers wait longer for their turn at the server.
pub(crate) const BATCH: usize = 500;

/// The longest wait for a majority; a sixth of the expiry leaves time for more attempts.
const LIMIT: Duration = Duration::from_secs(5);

/// Leases that one command can renew: those of one expiry, a bounded number.
pub(crate) fn batches(leases: Vec<Arc<Lease>>) -> Vec<Vec<Arc<Lease>>> {
    let mut by_expiry: BTreeMap<Duration, Vec<Arc<Lease>>> = BTreeMap::new();
    for lease in leases {
        by_expiry.entry(lease.terms.expiry).or_default().push(lease);
    }
    by_expiry
        .into_values()
        .flat_map(|group| group.chunks(BATCH).map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect()
}

/// Renews leases of one expiry with one command, on a task of its own: it may hang.
pub(crate) async fn renew(keeper: Arc<Keeper>, leases: Vec<Arc<Lease>>) {
    let Some(expiry) = leases.first().map(|lease| lease.terms.expiry) else {
        return;
    };
    let keys: Vec<ClaimKey> = leases.iter().map(|lease| lease.key.clone()).collect();
    let sent = Instant::now();
    match keeper.store().renew(&keys, expiry, (expiry / 6).min(LIMIT)).await {
        Ok(standing) => {
            for lease in &leases {
                if standing.includes(&lease.key) {
                    lease.extend(sent);
                    trace::renewed(lease);
                } else {
                    lease.lose(Loss::Gone);
                }
            }
            keeper.renewed(&leases, sent);
        }
        Err(error) => {
            trace::renewal_failed(&keys, &error);
            keeper.renewal_failed(&leases);
        }
    }
}

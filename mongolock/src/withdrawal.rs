use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::keeper::Keeper;
use crate::lease::{ClaimKey, Lease, margin};
use crate::queue::Kept;
use crate::renewal::BATCH;
use crate::store::Store;
use crate::{LockError, fault, trace};

/// A request that was under way when its sender gave up can reach the server this much later.
const LATE_REQUEST: Duration = Duration::from_secs(5);

/// A command without an answer after this time is taken to hang: on a dead connection, or at a document that a foreign
/// transaction has changed. The next one gets twice the time, so that few connections hang with it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The server gives up a repeated command after this time: it is sent again, and meanwhile others have their turn.
const REPEAT_LIMIT: Duration = Duration::from_secs(1);

/// Commands that are repeated after a silence, at the same time: each may keep a connection of the user's pool.
pub(crate) const REPEATS: usize = 3;

/// A claim that nobody wants any more, to be taken back in the background.
pub(crate) struct Withdrawal {
    pub(crate) key: ClaimKey,
    pub(crate) min_hold: Duration,
    pub(crate) at: Instant,
    /// The claim has ended by itself by then.
    until: Instant,
    /// Given up once the server has been told.
    kept: Kept,
    /// Commands that are still without an answer.
    unanswered: u32,
}

impl Withdrawal {
    pub(crate) fn new(key: ClaimKey, min_hold: Duration, expiry: Duration, kept: Kept) -> Self {
        let now = Instant::now();
        Self {
            key,
            min_hold,
            at: now,
            until: now + expiry,
            kept,
            unanswered: 0,
        }
    }

    /// Takes back the claim of a lease that has ended. If an earlier request of it may still be on its way, it is
    /// taken back once more when that must have arrived.
    pub(crate) fn of_lease(lease: &Lease) -> Self {
        if lease.is_haunted() {
            let late = Self::late(lease.key.clone(), lease.terms.expiry);
            lease.engine.keeper.withdraw(vec![late]);
        }
        Self::new(
            lease.key.clone(),
            lease.min_hold(),
            lease.terms.expiry,
            lease.take_kept(),
        )
    }

    /// Takes back the claim of a lease that has run out by its holder's clock, but that a renewal without an answer may
    /// have prolonged. Not before the server's own time for it, until which the holder may still be at work.
    pub(crate) fn of_expired(lease: &Lease) -> Self {
        // The next in this process need not wait for that.
        let mut withdrawal = Self::of_lease(lease).without_turn();
        withdrawal.at += margin(lease.terms.expiry);
        withdrawal
    }

    /// Takes back what a request that was under way when its sender gave up may do later.
    pub(crate) fn late(key: ClaimKey, expiry: Duration) -> Self {
        let mut withdrawal = Self::new(key, Duration::ZERO, expiry, Kept::Nothing);
        withdrawal.at += LATE_REQUEST;
        withdrawal.until += LATE_REQUEST;
        withdrawal
    }

    /// Somebody waits until it is done.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.kept, Kept::Nothing)
    }

    /// After a command that has failed or is without an answer: the next in this process has to hear for himself that
    /// the server does not work.
    pub(crate) fn without_turn(self) -> Self {
        Self {
            kept: self.kept.without_turn(),
            ..self
        }
    }

    /// Once more after a command that is without an answer.
    pub(crate) fn after_silence(self) -> Self {
        Self {
            at: Instant::now(),
            unanswered: self.unanswered + 1,
            ..self.without_turn()
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE * 2_u32.saturating_pow(self.unanswered)
    }
}

/// Withdrawals that one command can make: of one minimum hold, at one moment. The server stops at a document that a
/// foreign transaction has changed, and the rest of the command waits: after a command without an answer each claim
/// therefore has one of its own.
pub(crate) fn batches(withdrawals: Vec<Withdrawal>) -> Vec<Vec<Withdrawal>> {
    let now = Instant::now();
    let mut groups: BTreeMap<(Duration, Instant, u32), Vec<Withdrawal>> = BTreeMap::new();
    for withdrawal in withdrawals {
        let group = (withdrawal.min_hold, withdrawal.at.max(now), withdrawal.unanswered);
        groups.entry(group).or_default().push(withdrawal);
    }
    let mut batches = Vec::new();
    for ((.., unanswered), mut group) in groups {
        let together = if unanswered == 0 { BATCH } else { 1 };
        while group.len() > together {
            batches.push(group.split_off(group.len() - together));
        }
        batches.push(group);
    }
    batches
}

/// Takes claims back with one command when they are due, and again after an error while one of them may stand. Without
/// an answer the keeper sees to them.
pub(crate) async fn withdraw(keeper: Arc<Keeper>, mut batch: Vec<Withdrawal>) {
    let Some(first) = batch.first() else {
        return;
    };
    let (min_hold, is_repeat, patience) = (first.min_hold, first.unanswered > 0, first.patience());
    let until = batch.iter().map(|w| w.until).max().unwrap_or(first.at);
    let keys: Vec<ClaimKey> = batch.iter().map(|w| w.key.clone()).collect();
    let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_secs(2));
    tokio::time::sleep_until(first.at).await;
    loop {
        let permit = if is_repeat {
            keeper.repeats.acquire().await.ok()
        } else {
            None
        };
        let mut told = pin!(tell(keeper.store(), &keys, min_hold, is_repeat));
        let Ok(answer) = tokio::time::timeout(patience, told.as_mut()).await else {
            if Instant::now() < until {
                keeper.withdraw(batch.into_iter().map(Withdrawal::after_silence).collect());
            } else {
                trace::release_failed(&keys, &fault::unanswered("release", patience));
                drop(batch);
            }
            // A request is never dropped half-way; what comes of it is nothing to anybody.
            let _ = told.await;
            return;
        };
        let Err(error) = answer else { return };
        drop(permit);
        batch = batch.into_iter().map(Withdrawal::without_turn).collect();
        let pause = backoff.next();
        if fault::is_refusal(&error) || Instant::now() + pause >= until {
            trace::release_failed(&keys, &error);
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

async fn tell(
    store: &Store,
    keys: &[ClaimKey],
    min_hold: Duration,
    is_repeat: bool,
) -> Result<(), LockError> {
    match keys {
        [key] if is_repeat => store.release_within(key, min_hold, REPEAT_LIMIT).await,
        _ => store.release_many(keys, min_hold).await,
    }
}

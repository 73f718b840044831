use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Entry, QueueSlot};
use crate::backoff::Backoff;
use crate::lease::Lease;
use crate::lease::copies::Copies;
use crate::lease::given_up::{GivenUp, Pending};
use crate::lease::renewal::BATCH;
use crate::lease::renewer::Renewer;
use crate::store::LeaseId;
use crate::store::driver_error;
use crate::timing::{RELEASE_LIMIT, RELEASE_NO_REPLY, RELEASE_REPEAT_LIMIT};
use crate::{LockError, trace};

/// Releases of single claims that are repeated at the same time: each may keep a connection of the user's pool.
pub(crate) const REPEATS: usize = 3;

/// A claim that is no longer wanted, to be released in the background.
pub(crate) struct BackgroundRelease {
    pub(crate) key: LeaseId,
    pub(crate) min_hold: Duration,
    pub(crate) at: Instant,
    /// From then on nobody uses the claim: others in this process may release it before `at` if it is in their way.
    unused_from: Instant,
    /// The claim has ended by itself so long after `at`.
    expiry: Duration,
    /// Given up once the server has been told.
    slot: QueueSlot,
    /// Commands that failed or are without a reply. After the first one each claim has a command of its own.
    failed: u32,
    /// The requests of the claim, if one of them may take effect late: the id is released once more after this then.
    copies: Option<Arc<Copies>>,
    /// Made only because a request may have taken effect late.
    is_late: bool,
    /// Makes the id known as one that nobody uses.
    pending: Option<Pending>,
}

impl BackgroundRelease {
    fn new(key: LeaseId, min_hold: Duration, expiry: Duration, slot: QueueSlot) -> Self {
        let now = Instant::now();
        Self {
            key,
            min_hold,
            at: now,
            unused_from: now,
            expiry,
            slot,
            failed: 0,
            copies: None,
            is_late: false,
            pending: None,
        }
    }

    /// Releases a claim that never became a lease.
    pub(crate) fn of_claim(
        key: LeaseId,
        expiry: Duration,
        entry: Arc<Entry>,
        copies: Option<Arc<Copies>>,
    ) -> Self {
        Self {
            copies,
            ..Self::new(key, Duration::ZERO, expiry, QueueSlot::Entry { _entry: entry })
        }
    }

    /// Releases the claim of a lease that has ended.
    pub(super) fn of_lease(lease: &Lease, slot: QueueSlot) -> Self {
        Self {
            copies: lease.copies().cloned(),
            ..Self::new(lease.key.clone(), lease.min_hold(), lease.options.expiry, slot)
        }
    }

    /// The release that follows this one when this one has ended: at once if the claim may stand again, later if a request
    /// of it may still take effect; `None` if nothing can come any more. As long as the server has not confirmed a release
    /// with the minimum hold, all of them have it.
    fn next(&self, is_confirmed: bool) -> Option<Self> {
        let copies = Arc::clone(self.copies.as_ref()?);
        let is_late = !copies.end_release();
        let at = if is_late {
            copies.next_release()?
        } else {
            Instant::now()
        };
        let min_hold = if is_confirmed {
            Duration::ZERO
        } else {
            self.min_hold
        };
        Some(Self {
            at,
            is_late,
            copies: Some(copies),
            pending: self.pending.clone(),
            ..Self::new(self.key.clone(), min_hold, self.expiry, QueueSlot::Nothing)
        })
    }

    /// The claim may be in use until that moment: it is not released before. A lease may have run out by its holder's clock
    /// while its holder is still at work, until the server's own time for it.
    pub(super) fn unused_from(self, moment: Instant) -> Self {
        Self {
            at: self.at.max(moment),
            unused_from: moment,
            ..self
        }
    }

    /// Tells the others in this process that the claim is unused.
    pub(crate) fn announce(&mut self, given_up: &Arc<GivenUp>) {
        let (id, min_hold, from) = (&self.key.lock_id, self.min_hold, self.unused_from);
        self.pending
            .get_or_insert_with(|| given_up.add(id, min_hold, from));
    }

    /// Whether the server need not be told any more: all requests have been answered.
    pub(crate) fn is_settled(&self) -> bool {
        let copies = self.copies.as_ref().filter(|_| self.is_late);
        copies.is_some_and(|copies| !copies.may_take_effect())
    }

    /// Somebody waits until it is done.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.slot, QueueSlot::Nothing)
    }

    /// After a command that has failed or is without a reply: the next in this process has to hear for itself that the
    /// server does not work.
    pub(crate) fn without_turn(self) -> Self {
        Self {
            slot: self.slot.without_turn(),
            ..self
        }
    }

    pub(crate) fn due_at(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    /// Once more, in a command of its own.
    pub(crate) fn alone(self, at: Instant) -> Self {
        Self {
            // The claim ends by itself when it would have.
            expiry: self.until().saturating_duration_since(at),
            at,
            failed: self.failed + 1,
            ..self.without_turn()
        }
    }

    fn until(&self) -> Instant {
        self.at + self.expiry
    }

    fn reply_limit(&self) -> Duration {
        RELEASE_NO_REPLY * 2_u32.saturating_pow(self.failed)
    }
}

impl Renewer {
    /// After releases have ended, confirmed or given up: ids are released once more where a request may take effect late.
    /// Not before that: two releases of one claim must not overtake each other.
    pub(super) fn released(self: &Arc<Self>, ended: &[BackgroundRelease], is_confirmed: bool) {
        let next = ended.iter().filter_map(|release| release.next(is_confirmed));
        self.release_in_background(next.collect());
    }
}

/// Withdrawals that one command can make: of one minimum hold. The server stops at a document that a foreign
/// transaction has changed, and the rest of the command waits: after a command that failed there each claim has one of
/// its own.
pub(crate) fn batches(releases: Vec<BackgroundRelease>) -> Vec<Vec<BackgroundRelease>> {
    let now = Instant::now();
    let mut groups: BTreeMap<(Duration, Instant, u32), Vec<BackgroundRelease>> = BTreeMap::new();
    for release in releases {
        let group = (release.min_hold, release.at.max(now), release.failed);
        groups.entry(group).or_default().push(release);
    }
    let mut batches = Vec::new();
    for ((.., failed), mut group) in groups {
        let together = if failed == 0 { BATCH } else { 1 };
        while group.len() > together {
            batches.push(group.split_off(group.len() - together));
        }
        batches.push(group);
    }
    batches
}

/// Releases claims with one command when they are due, and again after an error while one of them may stand. Without
/// a reply the renewer's task goes on with them.
pub(crate) async fn send(renewer: Arc<Renewer>, mut batch: Vec<BackgroundRelease>) {
    let Some(first) = batch.first() else {
        return;
    };
    let (min_hold, is_repeat, reply_limit) = (first.min_hold, first.failed > 0, first.reply_limit());
    let until = batch
        .iter()
        .map(BackgroundRelease::until)
        .max()
        .unwrap_or(first.at);
    let keys: Vec<LeaseId> = batch.iter().map(|w| w.key.clone()).collect();
    let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_secs(2));
    tokio::time::sleep_until(first.at).await;
    loop {
        let permit = if is_repeat {
            renewer.repeats.acquire().await.ok()
        } else {
            None
        };
        let limit = if is_repeat {
            RELEASE_REPEAT_LIMIT
        } else {
            RELEASE_LIMIT
        };
        let mut released = pin!(renewer.store().release_many(&keys, min_hold, limit));
        let Ok(answer) = tokio::time::timeout(reply_limit, released.as_mut()).await else {
            // A dead connection must not keep the others waiting for their repeats.
            drop(permit);
            repeat_alone(
                &renewer,
                batch,
                until,
                &LockError::no_reply("release", reply_limit),
            );
            // A request is never dropped half-way, and its reply changes nothing any more.
            let _ = released.await;
            return;
        };
        let Err(error) = answer else {
            return renewer.released(&batch, true);
        };
        drop(permit);
        batch = batch.into_iter().map(BackgroundRelease::without_turn).collect();
        let pause = backoff.next();
        if driver_error::forbids_release(&error) || Instant::now() + pause >= until {
            trace::release_failed(keys.len(), &keys[0].name, &error);
            return renewer.released(&batch, false);
        }
        if batch.len() > 1 && driver_error::is_out_of_time(&error) {
            return repeat_alone(&renewer, batch, until, &error);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Has each claim released by a command of its own, as long as one of them may stand.
fn repeat_alone(renewer: &Arc<Renewer>, batch: Vec<BackgroundRelease>, until: Instant, error: &LockError) {
    let now = Instant::now();
    if now < until {
        renewer.release_in_background(batch.into_iter().map(|release| release.alone(now)).collect());
    } else {
        let first = batch.first().map_or("", |release| &*release.key.name);
        trace::release_failed(batch.len(), first, error);
        renewer.released(&batch, false);
    }
}

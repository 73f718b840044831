use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::QueueSlot;
use crate::backoff::Backoff;
use crate::lease::book::NextRelease;
use crate::lease::copies::Copies;
use crate::lease::given_up::{GivenUp, Pending};
use crate::lease::renewal::BATCH;
use crate::lease::renewer::Renewer;
use crate::lease::{Lease, Part};
use crate::moment::Luck;
use crate::store::driver_error::{self, Refusals};
use crate::store::{AdmissionClass, ClaimEnd, LeaseId};
use crate::sync::lock;
use crate::timing::{RELEASE_LIMIT, RELEASE_NO_REPLY, RELEASE_REPEAT_LIMIT};
use crate::{LockError, lock_id, trace};

/// The release of a claim that this process no longer needs, made by the renewer's task.
pub(crate) struct ClaimRelease {
    /// The lock's name and the id of the claim.
    pub(crate) key: LeaseId,
    /// What becomes of the claim.
    pub(crate) end: ClaimEnd,
    /// The time at which the release is due.
    pub(crate) at: Instant,
    /// The time from which no holder uses the claim: a waiter that meets it may release it even before `at`.
    unused_from: Instant,
    /// The time from `at` until the claim no longer keeps the lock taken at the server.
    taken_for: Duration,
    /// The claim's slot in the queue, which is dropped when the server has confirmed the release.
    slot: QueueSlot,
    /// The number of commands that failed or are without a reply. After the first one each claim has a command of its
    /// own.
    failures: u32,
    /// The acquire requests of the claim, if one of them may take effect late: the id is then released again after this.
    copies: Option<Copies>,
    /// Whether the only reason for this release is an acquire request that may have taken effect late.
    is_late: bool,
    /// Since when the server has refused the user.
    refusals: Refusals,
    /// Whether the server has refused the release for good.
    is_refused: bool,
    /// The entry of the id among the ids that this process has given up.
    pending: Option<Pending>,
    /// Whether the claim counts as an acquisition in the line of its lock; that of a round that got only a part of its set
    /// does not.
    is_noted_in_line: bool,
}

impl ClaimRelease {
    fn new(key: LeaseId, end: ClaimEnd, taken_for: Duration, slot: QueueSlot) -> Self {
        let now = Instant::now();
        Self {
            key,
            end,
            at: now,
            unused_from: now,
            taken_for,
            slot,
            failures: 0,
            copies: None,
            is_late: false,
            refusals: Refusals::default(),
            is_refused: false,
            pending: None,
            is_noted_in_line: true,
        }
    }

    /// Ends a claim that never became a lease; `is_noted_in_line` says whether it counts as an acquisition in the line of its lock.
    pub(crate) fn of_claim(
        key: LeaseId,
        end: ClaimEnd,
        taken_for: Duration,
        slot: QueueSlot,
        copies: Option<Copies>,
        is_noted_in_line: bool,
    ) -> Self {
        Self {
            copies,
            is_noted_in_line,
            ..Self::new(key, end, taken_for, slot)
        }
    }

    /// Releases the claims of a lease that has ended: one release for each of its names, which takes its slot.
    pub(super) fn of_lease(lease: &Lease) -> Vec<Self> {
        let (end, taken_for, is_late) = (lease.end(), lease.options.taken_for(), lease.is_gone());
        let mut slots = lock(&lease.slots);
        let claims = lease.keys.iter().zip(&*lease.parts).zip(slots.iter_mut());
        let release = |((key, part), slot): ((&LeaseId, &Part), _)| Self {
            copies: part.copies.clone(),
            is_late,
            is_noted_in_line: matches!(end, ClaimEnd::Released { .. }),
            ..Self::new(key.clone(), end.clone(), taken_for, std::mem::take(slot))
        };
        claims.map(release).collect()
    }

    /// The release that follows this one when this one has ended: at once if the claim may have been acquired again,
    /// later if an acquire request of it may still take effect, and otherwise `None`. As long as the server has not
    /// confirmed a release with the minimum hold, every release has it.
    fn next(&self, is_confirmed: bool) -> Option<Self> {
        let copies = self.copies.clone()?;
        let (at, is_late) = match copies.release_ended() {
            NextRelease::Never => return None,
            NextRelease::Now => (Instant::now(), false),
            NextRelease::At(at) => (at, true),
        };
        let end = match &self.end {
            // The beginning of a detached lease, from which its minimum hold counts, is that of the first acquisition.
            ClaimEnd::Released { .. } if is_confirmed && !lock_id::has_changed_hands(&self.key.lock_id) => {
                ClaimEnd::RELEASED
            }
            end => end.clone(),
        };
        Some(Self {
            at,
            is_late,
            copies: Some(copies),
            pending: self.pending.clone(),
            is_noted_in_line: self.is_noted_in_line,
            ..Self::new(self.key.clone(), end, self.taken_for, QueueSlot::Nothing)
        })
    }

    /// Delays the release until that moment, because the claim may be in use before: a lease that has expired by the
    /// holder's clock may still run by the server's, and the holder's work may go on until that ends, too.
    pub(super) fn unused_from(self, moment: Instant) -> Self {
        Self {
            at: self.at.max(moment),
            unused_from: moment,
            ..self
        }
    }

    /// Registers the id as given up, so that waiters in this process release the claim when they meet it.
    pub(crate) fn announce(&mut self, given_up: &Arc<GivenUp>) {
        let (id, end, from) = (&self.key.lock_id, &self.end, self.unused_from);
        self.pending.get_or_insert_with(|| given_up.add(id, end, from));
    }

    /// What is left of a release that the server has refused for good: until the claim ends by itself, the id counts as given up, so
    /// that a caller of this process that meets it learns the reason by a release of its own.
    fn refused(self) -> Self {
        Self {
            at: self.ends_at(),
            slot: QueueSlot::Nothing,
            is_refused: true,
            ..self
        }
    }

    /// Whether the release is no longer needed: the server has refused it, or it is a late one, and all acquire requests have been
    /// answered.
    pub(crate) fn is_settled(&self) -> bool {
        if self.is_refused {
            return true;
        }
        let copies = self.copies.as_ref().filter(|_| self.is_late);
        copies.is_some_and(|copies| !copies.may_take_effect())
    }

    /// Whether the claim has no lock, and gets none: the requests that were in flight when it was given up have changed nothing.
    fn is_unused(&self) -> bool {
        self.copies.as_ref().is_some_and(Copies::is_unused)
    }

    /// Whether a waiter or a shutdown waits for the end of this release.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.slot, QueueSlot::Nothing)
    }

    /// Passes the turn on after a command that has failed or is without a reply: the next waiter sends a request of its
    /// own and finds out by itself whether the server works.
    pub(crate) fn without_turn(mut self) -> Self {
        self.pass_turn_on();
        self
    }

    /// A slot for another release of the same lock, for which only a shutdown waits.
    pub(super) fn entry(&self) -> QueueSlot {
        self.slot.entry()
    }

    pub(super) fn pass_turn_on(&mut self) {
        self.slot.pass_turn_on();
    }

    pub(crate) fn rescheduled(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    /// The same release, of which the server has refused the user since then.
    pub(super) fn refused_since(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// The same release again, in a command of its own.
    pub(crate) fn alone(self, at: Instant) -> Self {
        Self {
            // The time at which the claim ends stays the same.
            taken_for: self.ends_at().saturating_duration_since(at),
            at,
            failures: self.failures + 1,
            ..self.without_turn()
        }
    }

    fn ends_at(&self) -> Instant {
        self.at + self.taken_for
    }

    /// How long to wait for the reply before the next command is sent on another connection.
    fn reply_limit(&self) -> Duration {
        RELEASE_NO_REPLY * 2_u32.saturating_pow(self.failures)
    }
}

impl Renewer {
    /// Schedules the late releases of ids whose acquire requests may take effect late. It is called when a release has
    /// ended, confirmed or given up, and not before: two releases of one claim must not overtake each other.
    pub(super) fn released(self: &Arc<Self>, ended: Vec<ClaimRelease>, is_confirmed: bool) {
        if is_confirmed {
            for release in &ended {
                if release.is_noted_in_line {
                    self.lines.released(&release.key.name);
                }
                release.slot.note_freed();
            }
        }
        self.ended(ended, is_confirmed);
    }

    /// Ends releases that the server has refused for good with one command: their locks stay taken until the claims end by
    /// themselves. The server stops at the document that it refuses, so of several claims each is released alone first.
    pub(super) fn release_refused(self: &Arc<Self>, releases: Vec<ClaimRelease>, error: &LockError) {
        if releases.len() > 1 && !driver_error::is_refusal(error) {
            let now = Instant::now();
            let alone = releases.into_iter().map(|release| release.alone(now));
            return self.release_in_background(alone.collect());
        }
        if let Some(first) = releases.first() {
            trace::release_failed(releases.len(), &first.key.name, error);
        }
        self.release_in_background(releases.into_iter().map(ClaimRelease::refused).collect());
    }

    /// The same for claims that other ids have replaced: their locks are not free.
    pub(super) fn replaced(self: &Arc<Self>, ended: Vec<ClaimRelease>) {
        self.ended(ended, true);
    }

    fn ended(self: &Arc<Self>, ended: Vec<ClaimRelease>, is_confirmed: bool) {
        if !self.store().is_closed() {
            let next = ended.iter().filter_map(|release| release.next(is_confirmed));
            self.release_in_background(next.collect());
        }
        // A caller of a set waits for the turn of the first name, and needs the others then.
        ended.into_iter().rev().for_each(drop);
    }
}

/// Groups releases for one command each: those that end their claims in one way, and are due at one time.
///
/// The server stops at a document that a foreign transaction has changed, and the rest of the command waits: after a
/// command that failed for that reason each claim has a command of its own.
pub(crate) fn batches(releases: Vec<ClaimRelease>) -> Vec<Vec<ClaimRelease>> {
    let now = Instant::now();
    let mut groups: BTreeMap<(ClaimEnd, Instant, u32), Vec<ClaimRelease>> = BTreeMap::new();
    for release in releases {
        let group = (release.end.clone(), release.at.max(now), release.failures);
        groups.entry(group).or_default().push(release);
    }
    let mut batches = Vec::new();
    for ((.., failures), mut group) in groups {
        let size = if failures == 0 { BATCH } else { 1 };
        while group.len() > size {
            batches.push(group.split_off(group.len() - size));
        }
        batches.push(group);
    }
    batches
}

/// Releases claims with one command when they are due, and again after an error until the last of them no longer keeps
/// its lock taken. Without a reply the renewer's task repeats each of them alone.
pub(crate) async fn send(renewer: Arc<Renewer>, mut batch: Vec<ClaimRelease>) {
    let Some(first) = batch.first() else {
        return;
    };
    let (end, is_repeat, reply_limit) = (first.end.clone(), first.failures > 0, first.reply_limit());
    let (due, last_end) = (first.at, last_end(&batch));
    // A dead connection or a blocked document must not delay the releases of other claims.
    let (class, limit) = if is_repeat {
        (AdmissionClass::RepeatedRelease, RELEASE_REPEAT_LIMIT)
    } else {
        (AdmissionClass::Release, RELEASE_LIMIT)
    };
    let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_secs(2));
    let mut refusals = first.refusals;
    tokio::time::sleep_until(due).await;
    loop {
        let admission = renewer.store().admissions().admit(class, None).await;
        let keys: Vec<LeaseId> = batch.iter().map(|release| release.key.clone()).collect();
        let mut request = pin!(renewer.store().end_many(&keys, &end, limit));
        let Ok(reply) = tokio::time::timeout(reply_limit, request.as_mut()).await else {
            let error = renewer.store().no_reply("release", reply_limit);
            repeat_alone(&renewer, batch, last_end, &error);
            // A request is never dropped before its end, but the reply to this one no longer has an effect.
            let _ = request.await;
            return;
        };
        let Err(error) = reply else {
            return renewer.released(batch, true);
        };
        drop(admission);
        let releases = batch.into_iter().map(ClaimRelease::without_turn);
        let (unused, left) = releases.partition(ClaimRelease::is_unused);
        renewer.released(unused, false);
        batch = left;
        if batch.is_empty() {
            return;
        }
        let pause = backoff.next(Luck::draw());
        if driver_error::is_closed(&error) || Instant::now() + pause >= last_end {
            return give_up(&renewer, batch, &error);
        }
        if refusals.end(Instant::now(), &error) {
            return renewer.release_refused(batch, &error);
        }
        batch = batch
            .into_iter()
            .map(|release| release.refused_since(refusals))
            .collect();
        if batch.len() > 1 && driver_error::is_out_of_time(&error) {
            return repeat_alone(&renewer, batch, last_end, &error);
        }
        tokio::time::sleep(pause).await;
    }
}

/// The time at which the last claim of a batch no longer keeps its lock taken at the server.
fn last_end(batch: &[ClaimRelease]) -> Instant {
    let ends = batch.iter().map(ClaimRelease::ends_at);
    ends.max().unwrap_or_else(Instant::now)
}

/// Schedules the release of each claim in a command of its own, unless all of them have ended.
fn repeat_alone(renewer: &Arc<Renewer>, batch: Vec<ClaimRelease>, last_end: Instant, error: &LockError) {
    let now = Instant::now();
    if now < last_end {
        renewer.release_in_background(batch.into_iter().map(|release| release.alone(now)).collect());
    } else {
        give_up(renewer, batch, error);
    }
}

/// Ends releases that have failed, and reports those of claims that may still have their locks.
fn give_up(renewer: &Arc<Renewer>, batch: Vec<ClaimRelease>, error: &LockError) {
    // A late release is a precaution, which ends with the provider.
    let is_precaution = |release: &ClaimRelease| release.is_late && driver_error::is_closed(error);
    let mut held = batch.iter().filter(|release| !is_precaution(release));
    if let Some(first) = held.next()
        && renewer.store().has_been_connected()
    {
        trace::release_failed(1 + held.count(), &first.key.name, error);
    }
    renewer.released(batch, false);
}

#[cfg(test)]
mod tests;

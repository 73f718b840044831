//! The works that may succeed only once, as their processes and the server's documents show them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use super::process::Process;
use crate::lock_id;
use crate::once::{Once, OnceGrant};
use crate::protocol::{Reply, Until};
use crate::store::LeaseId;
use crate::sync::lock;

/// The time for which a process must have run without a pause and without a failed request to count as healthy.
const HEALTHY_FOR: Duration = Duration::from_secs(30);

/// All works of a simulation.
#[derive(Default)]
pub(super) struct Works(Mutex<WorksState>);

#[derive(Default)]
struct WorksState {
    works: HashMap<LeaseId, Work>,
    /// The claims whose callers were told that the work is done.
    confirmed: HashSet<LeaseId>,
    /// The time of the server in the first reply to each claim that reached its process.
    first_replies: HashMap<Arc<str>, DateTime>,
    /// The ends of the marks, which the server has written for each name.
    marks: HashMap<Arc<str>, Vec<Until>>,
}

/// One work, from the beginning of its body.
struct Work {
    process: Arc<Process>,
    once: OnceGrant,
    /// The time at which its body has succeeded while the lease was live.
    succeeded: Option<Instant>,
    is_marked: bool,
    /// Whether the server has released the claim because the period was over.
    is_over: bool,
    /// Whether an operator has taken the lock away: others may do the work.
    is_forced: bool,
}

/// Whether the lock is free since the period of a mark is over.
fn is_released(reply: &Reply, end: Until) -> bool {
    let ended_at = reply
        .sight
        .as_ref()
        .and_then(|sight| sight.document.expires_at.date());
    match end {
        Until::At(end) => reply.has("") && ended_at >= Some(end),
        Until::After(_) => false,
    }
}

impl Works {
    /// Notes a reply to an acquire request; the first one decides which period the call belongs to.
    pub(super) fn replied(&self, key: &LeaseId, reply: &Reply) {
        if let Some(now) = reply.sight.as_ref().and_then(|sight| sight.now) {
            let first_replies = &mut lock(&self.0).first_replies;
            let first = first_replies.entry(Arc::clone(&key.lock_id));
            first.or_insert(DateTime::from_millis(now));
        }
    }

    /// Notes that a body begins, and returns what that breaks.
    pub(super) fn begin(
        &self,
        process: &Arc<Process>,
        key: &LeaseId,
        once: OnceGrant,
        of: Once,
    ) -> Vec<String> {
        let state = &mut *lock(&self.0);
        let mut breaches = Vec::new();
        let mut breach =
            |what: &str| breaches.push(format!("the work of {} by {} {what}", key.name, key.lock_id));
        let first_reply = state.first_replies.get(&key.lock_id);
        let due = first_reply.and_then(|now| of.period_end(*now));
        if let (Until::At(end), Some(due)) = (once.mark_end, due)
            && end > due.timestamp_millis()
        {
            breach("begins in a later period than that of its call");
        }
        let same = |(other, work): &(&LeaseId, &Work)| {
            other.name == key.name && is_same(work.once.mark_end, once.mark_end)
        };
        for (_, work) in state.works.iter().filter(same) {
            if work.is_marked {
                breach("begins although it is marked as done");
            } else if work.succeeded.is_some()
                && !work.is_over
                && !work.is_forced
                && work.process.is_healthy(HEALTHY_FOR)
            {
                breach("begins although it has succeeded in a process that is healthy");
            }
        }
        let work = Work {
            process: Arc::clone(process),
            once,
            succeeded: None,
            is_marked: false,
            is_over: false,
            is_forced: false,
        };
        state.works.insert(key.clone(), work);
        breaches
    }

    /// Notes that a body has succeeded while its lease was live.
    pub(super) fn succeeded(&self, key: &LeaseId) {
        if let Some(work) = lock(&self.0).works.get_mut(key) {
            work.succeeded = Some(Instant::now());
        }
    }

    /// Notes what the server has done with a claim that was to be marked.
    pub(super) fn marked(&self, key: &LeaseId, reply: &Reply, end: Until) {
        let state = &mut *lock(&self.0);
        let is_marked = reply.has(&lock_id::mark_of(&key.lock_id));
        if is_marked {
            state.marks.entry(Arc::clone(&key.name)).or_default().push(end);
        }
        if let Some(work) = state.works.get_mut(key) {
            work.is_marked |= is_marked;
            work.is_over |= is_released(reply, end);
        }
    }

    /// Notes that the server has released a claim that has had its lock since then (`None` if its lease is over), and returns what
    /// that breaks. After its mark, its period, a forced release or the loss of its lease a claim may have its lock again, by an
    /// acquire request that has taken effect late.
    pub(super) fn released(&self, key: &LeaseId, granted: Option<Instant>, now: DateTime) -> Option<String> {
        let state = lock(&self.0);
        let is_over = |work: &&Work| match work.once.mark_end {
            Until::At(end) => end <= now.timestamp_millis(),
            Until::After(_) => false,
        };
        let work = state
            .works
            .get(key)
            .filter(|work| !work.is_marked && !work.is_forced && !is_over(work))?;
        let is_breach = work.succeeded >= Some(granted?);
        is_breach.then(|| {
            format!(
                "the work of {} by {} has succeeded and is released",
                key.name, key.lock_id
            )
        })
    }

    /// Notes that a caller was told that the work of this claim is done, and returns what that breaks.
    pub(super) fn confirmed(&self, key: &LeaseId) -> Option<String> {
        let state = &mut *lock(&self.0);
        state.confirmed.insert(key.clone());
        let work = state.works.get(key)?;
        if !(work.is_marked || work.is_over) {
            return Some(format!("the work of {} is confirmed without a mark", key.name));
        }
        let is_second = |(other, before): (&LeaseId, &Work)| {
            other != key
                && other.name == key.name
                && is_same(before.once.mark_end, work.once.mark_end)
                && state.confirmed.contains(other)
        };
        let is_second = state.works.iter().any(is_second);
        is_second.then(|| format!("the work of {} is confirmed twice in one period", key.name))
    }

    /// Notes that an operator has ended the claim with this id, or cleared its mark: then the work may be done again.
    pub(super) fn forced(&self, name: &str, lock_id: &str) {
        let works = &mut lock(&self.0).works;
        works.retain(|key, _| *key.name != *name || lock_id != lock_id::mark_of(&key.lock_id));
        let claim = |key: &LeaseId| *key.name == *name && *key.lock_id == *lock_id;
        if let Some((_, work)) = works.iter_mut().find(|(key, _)| claim(key)) {
            work.is_forced = true;
        }
    }

    /// Whether the server has written a mark for this name that ends then, or is kept for a fixed time.
    pub(super) fn has_mark(&self, name: &str, until: DateTime) -> bool {
        let state = lock(&self.0);
        let mut marks = state.marks.get(name).into_iter().flatten();
        marks.any(|end| match end {
            Until::At(end) => *end == until.timestamp_millis(),
            Until::After(_) => true,
        })
    }
}

/// Whether two works of one name are the same one: in one period, or of a tick, which is in the name.
fn is_same(one: Until, other: Until) -> bool {
    match (one, other) {
        (Until::At(one), Until::At(other)) => one == other,
        _ => true,
    }
}

impl Process {
    /// Whether the process lives, and has run for this time without a pause and without a failed request.
    fn is_healthy(&self, period: Duration) -> bool {
        let since = Instant::now().checked_sub(period);
        !self.has_crashed() && !self.was_paused_within(period) && self.contacts.troubled_since(since) == 0
    }
}

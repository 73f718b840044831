use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::wake_ups::WakeUps;
use crate::sync::lock;

/// The time in which a healthy server replies.
const HEALTHY: Duration = Duration::from_millis(100);

/// The longest time for which a request is without a reply if no fault hits it.
const ON_ITS_WAY: Duration = Duration::from_millis(20);

/// What one process has sent and received, as seen by its network.
#[derive(Default)]
pub(super) struct Contacts {
    names: Mutex<HashMap<Arc<str>, Contact>>,
    /// The requests without a reply, with a late reply or with an error, by their number.
    troubled: Mutex<HashMap<u64, Request>>,
    /// The number of the last request.
    last_request: Mutex<u64>,
    /// What it has heard of releases.
    pub(super) wake_ups: WakeUps,
}

struct Request {
    sent: Instant,
    has_failed: bool,
}

/// What this process has learned about one name.
#[derive(Default, Clone)]
pub(super) struct Contact {
    /// The number of calls that wait for the lock or hold it.
    pub(super) callers: usize,
    /// The time since which more calls want the lock than have it.
    pub(super) waits_since: Option<Instant>,
    /// The number of requests and looks without a reply.
    asking: usize,
    /// The number of holds of this process.
    pub(super) holding: usize,
    /// The last time at which a reply or a hold of this process showed that the lock was held.
    pub(super) held: Option<Instant>,
    /// The last time at which a reply showed others in line for the lock.
    pub(super) others_in_line: Option<Instant>,
    /// The time at which the last call ended.
    last_end: Option<Instant>,
    /// The time of the last usable reply that reached its caller, or of the last change of a hold of this process.
    pub(super) last_reply: Option<Instant>,
    /// The last time at which a reply found the lock free.
    pub(super) free: Option<Instant>,
    /// The time of the first acquire request since the last usable reply.
    pub(super) silent_since: Option<Instant>,
    /// A claim of this process that no caller uses and that makes the lock busy.
    unused_claim: Option<UnusedClaim>,
}

#[derive(Clone)]
struct UnusedClaim {
    lock_id: Arc<str>,
    since: Instant,
    replies: u32,
}

/// A request or a look without a reply, counted until it is dropped.
pub(super) struct Asking {
    contacts: Arc<Contacts>,
    name: Arc<str>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.contacts.change(&self.name, |contact| contact.asking -= 1);
    }
}

/// One caller or holder of a name, counted until it is dropped.
pub(super) struct Present {
    contacts: Arc<Contacts>,
    name: Arc<str>,
    holds: bool,
}

impl Contacts {
    pub(super) fn contact(&self, name: &str) -> Contact {
        lock(&self.names).get(name).cloned().unwrap_or_default()
    }

    pub(super) fn call(self: &Arc<Self>, name: &Arc<str>) -> Present {
        self.change(name, |contact| contact.callers += 1);
        self.present(name, false)
    }

    pub(super) fn hold(self: &Arc<Self>, name: &Arc<str>) -> Present {
        self.change(name, |contact| {
            contact.holding += 1;
            contact.set_held();
            contact.last_reply = contact.held;
            // A look that was sent before a claim became a hold may have found it unused.
            contact.unused_claim = None;
        });
        self.present(name, true)
    }

    /// Notes that a request is sent, and returns its number.
    pub(super) fn sent(&self) -> u64 {
        let mut last = lock(&self.last_request);
        *last += 1;
        let request = Request {
            sent: Instant::now(),
            has_failed: false,
        };
        lock(&self.troubled).insert(*last, request);
        *last
    }

    /// Notes that a request had a reply or has failed.
    pub(super) fn ended(&self, number: u64, is_good: bool) {
        let mut troubled = lock(&self.troubled);
        let Some(request) = troubled.get_mut(&number) else {
            return;
        };
        request.has_failed = !is_good;
        if is_good && request.sent.elapsed() < HEALTHY {
            troubled.remove(&number);
        }
    }

    /// The number of requests sent since then that had no reply in time or failed.
    pub(super) fn troubled_since(&self, since: Option<Instant>) -> usize {
        let troubled = lock(&self.troubled);
        let counts = |request: &Request| {
            let is_recent = since.is_none_or(|since| request.sent >= since);
            is_recent && (request.has_failed || request.sent.elapsed() > ON_ITS_WAY)
        };
        troubled.values().filter(|request| counts(request)).count()
    }

    /// Notes that an acquire request or a look is sent, until the value is dropped.
    pub(super) fn asks(self: &Arc<Self>, name: &Arc<str>) -> Asking {
        self.change(name, |contact| {
            contact.asking += 1;
            contact.silent_since.get_or_insert_with(Instant::now);
        });
        Asking {
            contacts: Arc::clone(self),
            name: Arc::clone(name),
        }
    }

    /// Notes an event that says that the lock was acquired. It says nothing of a request that has no reply yet.
    pub(super) fn heard_of(&self, name: &Arc<str>) {
        self.change(name, |contact| {
            if contact.asking == 0 {
                contact.set_held();
            }
        });
    }

    /// Notes a usable reply to an acquire request. If a call has ended since the request was sent, or just before, that may
    /// have been its caller, and the reply reaches none.
    pub(super) fn replied(&self, name: &Arc<str>, sent: Instant) {
        self.change(name, |contact| {
            if contact.last_end.is_none_or(|end| end + ON_ITS_WAY < sent) {
                contact.last_reply = Some(Instant::now());
            }
        });
    }

    /// Notes a usable reply that does not name a holder.
    pub(super) fn note_reply_without_holder(&self, name: &Arc<str>) {
        self.change(name, |contact| {
            contact.silent_since = None;
            contact.unused_claim = None;
            contact.free = Some(Instant::now());
        });
    }

    /// Notes a reply that the lock is held.
    pub(super) fn note_held(&self, name: &Arc<str>) {
        self.change(name, |contact| {
            contact.set_held();
            contact.unused_claim = None;
        });
    }

    /// Notes a reply that others stand in line for the lock.
    pub(super) fn note_others_in_line(&self, name: &Arc<str>) {
        self.change(name, |contact| contact.others_in_line = Some(Instant::now()));
    }

    /// Notes a reply that the lock is held by an unused claim of this process, and returns whether such replies have come
    /// for longer than allowed, up to the time at which the request was sent: its reply may have been long on its way.
    pub(super) fn note_own_unused_claim(
        &self,
        name: &Arc<str>,
        lock_id: &Arc<str>,
        sent: Instant,
        allowed: Duration,
    ) -> bool {
        let mut allows = false;
        self.change(name, |contact| {
            contact.set_held();
            let unused_claim = contact
                .unused_claim
                .take()
                .filter(|unused_claim| unused_claim.lock_id == *lock_id)
                .unwrap_or_else(|| UnusedClaim {
                    lock_id: Arc::clone(lock_id),
                    since: Instant::now(),
                    replies: 0,
                });
            // A request that was sent before the first such reply was on its way for long, and its reply says no more.
            let is_first = unused_claim.replies == 0;
            let replies = unused_claim.replies + u32::from(is_first || sent >= unused_claim.since);
            allows = replies > 3 && sent.saturating_duration_since(unused_claim.since) > allowed;
            contact.unused_claim = Some(UnusedClaim {
                replies,
                ..unused_claim
            });
        });
        allows
    }

    /// Notes that a release is sent: it may be lost.
    pub(super) fn releases(&self, name: &Arc<str>) {
        self.change(name, |contact| contact.unused_claim = None);
    }

    fn change(&self, name: &Arc<str>, change: impl FnOnce(&mut Contact)) {
        let names = &mut *lock(&self.names);
        let contact = names.entry(Arc::clone(name)).or_default();
        change(contact);
        if contact.callers <= contact.holding {
            contact.waits_since = None;
        } else {
            contact.waits_since.get_or_insert_with(Instant::now);
        }
    }

    fn present(self: &Arc<Self>, name: &Arc<str>, holds: bool) -> Present {
        Present {
            contacts: Arc::clone(self),
            name: Arc::clone(name),
            holds,
        }
    }
}

impl Contact {
    fn set_held(&mut self) {
        self.held = Some(Instant::now());
        self.silent_since = None;
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.contacts.wake_ups.call_ended(&self.name);
        self.contacts.change(&self.name, |contact| {
            if self.holds {
                contact.holding -= 1;
                contact.set_held();
            } else {
                contact.callers -= 1;
                contact.last_end = Some(Instant::now());
            }
            // A process forgets the status of a name without callers.
            if contact.callers + contact.holding == 0 {
                contact.silent_since = None;
            }
        });
    }
}

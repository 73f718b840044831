use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// A healthy server answers sooner.
const HEALTHY: Duration = Duration::from_millis(100);

/// The longest time for which a request is without a reply where nothing goes wrong.
const ON_ITS_WAY: Duration = Duration::from_millis(20);

/// What one process has sent and heard, as its network saw it.
#[derive(Default)]
pub(super) struct Contacts {
    names: Mutex<HashMap<Arc<str>, Contact>>,
    /// When those requests were sent that have no reply yet, or had none for long, or ended with an error.
    troubled: Mutex<HashMap<u64, Request>>,
    last_request: Mutex<u64>,
}

struct Request {
    sent: Instant,
    has_failed: bool,
}

/// What is known of one name.
#[derive(Default, Clone)]
pub(super) struct Contact {
    /// Calls that want or have the lock.
    pub(super) callers: usize,
    /// Holds of this process.
    pub(super) holding: usize,
    /// The last moment at which a reply or a hold here said that the lock was held.
    pub(super) held: Option<Instant>,
    /// When the last call ended.
    last_end: Option<Instant>,
    /// The last usable reply to a claim of which its caller has heard, or the last change of a hold here.
    pub(super) heard: Option<Instant>,
    /// The first claim that no usable reply has followed.
    pub(super) silent_since: Option<Instant>,
    /// A claim of this process that nobody here wants and that answers its claims.
    ghost: Option<Ghost>,
}

#[derive(Clone)]
struct Ghost {
    lock_id: Arc<str>,
    since: Instant,
    replies: u32,
}

/// One of the callers or holders of a name, until dropped.
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
            contact.hear_held();
            contact.heard = contact.held;
        });
        self.present(name, true)
    }

    /// A request is sent; its number.
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

    /// A request had a reply, or has failed.
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

    /// The requests sent since then that were not answered as they should.
    pub(super) fn troubled_since(&self, since: Option<Instant>) -> usize {
        let troubled = lock(&self.troubled);
        let counts = |request: &Request| {
            let is_recent = since.is_none_or(|since| request.sent >= since);
            is_recent && (request.has_failed || request.sent.elapsed() > ON_ITS_WAY)
        };
        troubled.values().filter(|request| counts(request)).count()
    }

    pub(super) fn claims(&self, name: &Arc<str>) {
        self.change(name, |contact| {
            contact.silent_since.get_or_insert_with(Instant::now);
        });
    }

    /// A usable reply has come to a claim. If a call has ended since it was sent, or just before, that may have been its
    /// caller, and nobody hears of the reply.
    pub(super) fn replied(&self, name: &Arc<str>, sent: Instant) {
        self.change(name, |contact| {
            if contact.last_end.is_none_or(|end| end + ON_ITS_WAY < sent) {
                contact.heard = Some(Instant::now());
            }
        });
    }

    /// A usable reply that says nothing about a holder.
    pub(super) fn heard(&self, name: &Arc<str>) {
        self.change(name, |contact| {
            contact.silent_since = None;
            contact.ghost = None;
        });
    }

    pub(super) fn heard_held(&self, name: &Arc<str>) {
        self.change(name, |contact| {
            contact.hear_held();
            contact.ghost = None;
        });
    }

    /// A claim was answered with one of this process that nobody here holds. Whether that goes on for seconds.
    pub(super) fn heard_ghost(&self, name: &Arc<str>, lock_id: &Arc<str>, allowed: Duration) -> bool {
        let mut allows = false;
        self.change(name, |contact| {
            contact.hear_held();
            let ghost = contact
                .ghost
                .take()
                .filter(|ghost| ghost.lock_id == *lock_id)
                .unwrap_or_else(|| Ghost {
                    lock_id: Arc::clone(lock_id),
                    since: Instant::now(),
                    replies: 0,
                });
            let replies = ghost.replies + 1;
            allows = replies > 3 && ghost.since.elapsed() > allowed;
            contact.ghost = Some(Ghost { replies, ..ghost });
        });
        allows
    }

    /// A release of a claim is sent: it may be lost.
    pub(super) fn releases(&self, name: &Arc<str>) {
        self.change(name, |contact| contact.ghost = None);
    }

    fn change(&self, name: &Arc<str>, change: impl FnOnce(&mut Contact)) {
        change(lock(&self.names).entry(Arc::clone(name)).or_default());
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
    fn hear_held(&mut self) {
        self.held = Some(Instant::now());
        self.silent_since = None;
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.contacts.change(&self.name, |contact| {
            if self.holds {
                contact.holding -= 1;
                contact.held = Some(Instant::now());
            } else {
                contact.callers -= 1;
                contact.last_end = Some(Instant::now());
            }
            // A process forgets what it has heard of a name that nobody in it wants.
            if contact.callers + contact.holding == 0 {
                contact.silent_since = None;
            }
        });
    }
}

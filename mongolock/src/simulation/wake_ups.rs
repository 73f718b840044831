//! Whether a waiter sends a request soon after the event of a release has reached its process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::order::Order;
use super::process::Process;
use super::server::{Command, Server};
use crate::engine::Engine;
use crate::permit_id;
use crate::protocol::{News, Reply};
use crate::store::LeaseId;
use crate::sync::lock;

/// The longest time after the event of a release, or after the last reply, in which a waiter that relies on events sends a
/// request: the time slots that it leaves to others in line last 50 ms together.
const ASKS_WITHIN: Duration = Duration::from_millis(500);

/// The longest time after a command for the name that has failed: the release is repeated, or the waiter polls beside its
/// stream.
const AFTER_FAILURE: Duration = Duration::from_secs(6);

/// The shortest and the longest time between two looks at what a process does.
const LOOKS_EVERY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

/// The time that a waiter which does not rely on events yet may take after its longest pause.
const AFTER_PAUSE: Duration = Duration::from_millis(100);

/// What one process has heard of releases, and what it has sent since.
#[derive(Default)]
pub(super) struct WakeUps {
    names: Mutex<HashMap<Arc<str>, Name>>,
    /// The engine of the process, whose queues say whether a caller has the turn of a name.
    engine: OnceLock<Weak<Engine>>,
}

/// What a process knows of one name by which its callers wait: a lock, or all permits of a semaphore.
struct Name {
    /// The document whose release the last event has reported, if no request was sent since.
    released: Option<Arc<str>>,
    /// The number of commands without a reply.
    in_flight: usize,
    /// Whether the last request or query has failed: a pause follows.
    has_failed: bool,
    /// Whether the last other command has failed: it may be a release that is repeated.
    has_failed_release: bool,
    /// The last time at which an event, a reply or the end of a call could change what the process does next.
    since: Instant,
    /// The claim that has acquired the lock for this process, until its release is sent. A part of a set has no caller yet.
    claim: Option<Arc<str>>,
    /// Whether a task watches what the process does.
    is_watched: bool,
}

impl Default for Name {
    fn default() -> Self {
        Self {
            released: None,
            in_flight: 0,
            has_failed: false,
            has_failed_release: false,
            since: Instant::now(),
            claim: None,
            is_watched: false,
        }
    }
}

impl Name {
    fn forget(&mut self) {
        self.released = None;
        self.is_watched = false;
    }
}

/// One command, until its end; without one it has failed.
pub(super) struct Sent {
    process: Arc<Process>,
    names: Vec<Arc<str>>,
    /// Whether it asks for locks or about them.
    asks: bool,
    is_good: bool,
}

impl Sent {
    /// Notes that a command is sent.
    pub(super) fn new(process: &Arc<Process>, order: &Order) -> Self {
        let names: Vec<Arc<str>> = order.keys.iter().map(|key| awaited(&key.name)).collect();
        for (key, name) in order.keys.iter().zip(&names) {
            process.contacts.wake_ups.change(name, |name| {
                name.in_flight += 1;
                match order.kind {
                    Command::Claim | Command::Look => name.released = None,
                    Command::Release | Command::Withdraw => {
                        name.claim.take_if(|claim| *claim == key.lock_id);
                    }
                    Command::Renew => {}
                }
            });
        }
        Self {
            process: Arc::clone(process),
            names,
            asks: matches!(order.kind, Command::Claim | Command::Look),
            is_good: false,
        }
    }

    pub(super) fn ended(mut self, is_good: bool) {
        self.is_good = is_good;
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        for name in &self.names {
            self.process.contacts.wake_ups.change(name, |name| {
                name.in_flight -= 1;
                if self.asks {
                    name.has_failed = !self.is_good;
                } else {
                    name.has_failed_release = !self.is_good;
                }
                name.since = Instant::now();
            });
        }
    }
}

impl WakeUps {
    pub(super) fn begin(&self, engine: &Arc<Engine>) {
        drop(self.engine.set(Arc::downgrade(engine)));
    }

    /// Notes that a call for this name has ended: what the next one does begins now.
    pub(super) fn call_ended(&self, name: &str) {
        let names = &mut *lock(&self.names);
        for (awaited, state) in names.iter_mut() {
            if **awaited == *name || permit_id::group(name) == *awaited {
                state.since = Instant::now();
            }
        }
    }

    /// Notes the reply to a claim. A permit leaves the turn of its semaphore to the next caller.
    pub(super) fn replied(&self, key: &LeaseId, reply: &Reply) {
        let is_permit = permit_id::parts(&key.name).is_some();
        if reply.has(&key.lock_id) && !is_permit {
            self.change(&key.name, |name| name.claim = Some(Arc::clone(&key.lock_id)));
        }
    }

    fn change<T>(&self, name: &Arc<str>, change: impl FnOnce(&mut Name) -> T) -> T {
        change(lock(&self.names).entry(Arc::clone(name)).or_default())
    }

    /// Whether a caller of this process has the turn of a name.
    fn has_turn(&self, name: &str) -> bool {
        self.engine()
            .is_some_and(|engine| engine.queues.is_turn_taken(name))
    }

    /// The longest time in which a request follows. A waiter whose first requests have found the lock held pauses within the
    /// retry interval, and the events that its process gets are for others.
    fn asks_within(&self, name: &Arc<str>, has_failed: bool) -> Duration {
        if has_failed {
            return AFTER_FAILURE;
        }
        match self.engine() {
            Some(engine) if !engine.notifier.wakes(name) => {
                ASKS_WITHIN.max(*engine.config.retry_interval.end() + AFTER_PAUSE)
            }
            _ => ASKS_WITHIN,
        }
    }

    /// Whether so many commands are in flight that an acquire request has to wait.
    fn is_limited(&self) -> bool {
        self.engine()
            .is_some_and(|engine| engine.store.admissions().is_full())
    }

    fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.get()?.upgrade()
    }
}

/// Notes an event that has reached a process. If it is a release, a request for the lock must follow.
pub(super) fn heard(server: &Arc<Server>, process: &Arc<Process>, event: &News) {
    let name = awaited(&event.name);
    let is_new = process.contacts.wake_ups.change(&name, |state| {
        if event.holder().is_some() {
            state.released.take_if(|released| *released == event.name);
            return false;
        }
        state.released = Some(Arc::clone(&event.name));
        state.since = Instant::now();
        !std::mem::replace(&mut state.is_watched, true)
    });
    if is_new {
        tokio::spawn(watch(Arc::clone(server), Arc::clone(process), name));
    }
}

/// Waits until a request has followed the last release, or until none has to follow.
async fn watch(server: Arc<Server>, process: Arc<Process>, name: Arc<str>) {
    let wake_ups = &process.contacts.wake_ups;
    loop {
        let now = Instant::now();
        let (released, since, has_failed) = wake_ups.change(&name, |state| {
            let is_busy = state.in_flight > 0 || state.claim.is_some();
            let since = if is_busy { now } else { state.since };
            (
                state.released.clone(),
                since,
                state.has_failed || state.has_failed_release,
            )
        });
        // Without the turn no caller waits for the lock itself; a hold that its caller has left may have it as well.
        let is_awaited = |released: &Arc<str>| {
            let contact = process.contacts.contact(permit_id::shown(released));
            server.is_free(released) && wake_ups.has_turn(&name) && contact.waits_since.is_some()
        };
        let Some(released) = released.filter(is_awaited) else {
            return wake_ups.change(&name, Name::forget);
        };
        let within = wake_ups.asks_within(&name, has_failed);
        let due = since.max(process.resumed()) + within;
        if due <= now && !process.was_paused_within(within) && !wake_ups.is_limited() {
            let number = process.number;
            let breach = format!(
                "{number} got the event of a release of {released}, and sends no request for {within:?}"
            );
            server.note(|| breach.clone());
            server.ledger.breach(breach);
            return wake_ups.change(&name, Name::forget);
        }
        // It looks again soon, because the turn may pass from one caller to another meanwhile.
        sleep_until(due.clamp(now + LOOKS_EVERY.0, now + LOOKS_EVERY.1)).await;
    }
}

/// The name by which callers wait for this document.
fn awaited(document: &str) -> Arc<str> {
    Arc::from(permit_id::awaited(document))
}

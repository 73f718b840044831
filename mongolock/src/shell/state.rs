//! What all clones of a provider share, and how an event is taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::cell::Cell;
use super::clock::Clock;
use super::queue::{Command, Commands};
use super::wake::wake;
use crate::core::{Conf, Core, Effect, Event, Luck, Time, Waiter};
use crate::store::Store;
use crate::sync::lock;

/// What all clones of a provider share.
pub(crate) struct Shell {
    core: Mutex<(Core<Arc<Cell>>, System)>,
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    /// Where its tasks run; without one, in the runtimes of its callers.
    pub(super) home: Option<Handle>,
    /// When the timer is due, in microseconds of the clock; the greatest number if it is not.
    pub(super) armed: AtomicI64,
    pub(super) rearmed: Arc<Notify>,
    pub(super) timer: Mutex<Option<JoinHandle<()>>>,
    /// Ends the task of the present change stream.
    pub(super) stream: Mutex<Arc<AtomicBool>>,
    pub(super) commands: Mutex<Commands>,
    pub(super) idle: Notify,
}

/// Random numbers. Ids come from the operating system, one by one: a process that was copied never repeats one.
struct System(u64);

impl Luck for System {
    fn id(&mut self) -> u64 {
        Uuid::new_v4().as_u64_pair().1
    }

    fn chance(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27 | 1
    }
}

impl Shell {
    pub(crate) fn new(conf: Conf, store: Arc<Store>, home: Option<Handle>) -> Arc<Self> {
        let clock = if store.never_waits() {
            Clock::Tokio(Instant::now())
        } else {
            Clock::System(std::time::Instant::now())
        };
        let mut system = System(0);
        system.0 = system.id();
        Arc::new(Self {
            core: Mutex::new((Core::new(conf, Time(0)), system)),
            store,
            clock,
            home,
            armed: AtomicI64::new(i64::MAX),
            rearmed: Arc::new(Notify::new()),
            timer: Mutex::default(),
            stream: Mutex::default(),
            commands: Mutex::default(),
            idle: Notify::new(),
        })
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn runtime(&self) -> Option<Handle> {
        self.home.clone().or_else(|| Handle::try_current().ok())
    }

    /// Takes an event: the core decides, commands are sent in the order in which it decided, and then callers are woken.
    pub(crate) fn apply(self: &Arc<Self>, event: Event<Arc<Cell>>) -> Option<Waiter> {
        let mut wakers = Vec::new();
        let waiter = self.decide(event, &mut wakers);
        self.send(&mut wakers);
        wake(wakers);
        waiter
    }

    /// Cells are set and commands queued before another thread can decide.
    pub(super) fn decide(&self, event: Event<Arc<Cell>>, wakers: &mut Vec<Waker>) -> Option<Waiter> {
        let (core, luck) = &mut *lock(&self.core);
        let now = self.now();
        let waiter = core.handle(now, luck, event);
        let mut commands = Vec::new();
        // Holds that nobody is there to take end here.
        let mut returned = VecDeque::new();
        loop {
            for effect in core.take_effects() {
                match effect {
                    Effect::Notify(cell, notice) => returned.extend(cell.note(notice, wakers)),
                    effect => commands.extend(Command::of(effect)),
                }
            }
            let Some(event) = returned.pop_front() else { break };
            core.handle(now, luck, event);
        }
        if !commands.is_empty() {
            lock(&self.commands).waiting.extend(commands);
        }
        if let Some(at) = core.next_due()
            && self.armed.fetch_min(at.0, Ordering::AcqRel) > at.0
        {
            self.rearmed.notify_one();
        }
        waiter
    }

    /// Ends all calls and holds, and waits for their releases within this time.
    pub(crate) async fn shut_down(self: &Arc<Self>, limit: Duration) {
        let idle = self.idle.notified();
        self.apply(Event::Shutdown { is_closed: true });
        if !lock(&self.core).0.is_idle() {
            let _ = timeout(limit, idle).await;
        }
        self.end_stream();
    }
}

#[cfg(test)]
impl Shell {
    /// Whether nothing is held, awaited or being released.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.core).0.is_empty()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.end_stream();
        self.rearmed.notify_one();
    }
}

//! The timer: it applies `Event::Tick` when a timer of the core is due.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use super::state::{Engine, Event};
use crate::core::Time;
use crate::sync::lock;

impl Engine {
    /// A caller has a runtime: if the timer's runtime has ended, the timer continues there, and commands that had no
    /// runtime are sent.
    pub(super) fn lend_runtime(self: &Arc<Self>) {
        let timer = &mut lock(&self.tasks).timer;
        if timer.as_ref().is_none_or(JoinHandle::is_finished) {
            let task = run(Arc::downgrade(self), Arc::clone(&self.rearmed));
            *timer = self.runtime().map(|runtime| runtime.spawn(task));
        }
    }
}

async fn run(engine: Weak<Engine>, rearmed: Arc<Notify>) {
    loop {
        let Some(present) = engine.upgrade() else { return };
        let at = present.armed.load(Ordering::Acquire);
        let is_set = at != i64::MAX;
        if !is_set && present.refuses(true) {
            return;
        }
        let due = present.clock.instant(Time(at));
        drop(present);
        if !is_set {
            rearmed.notified().await;
            continue;
        }
        if timeout_at(due, rearmed.notified()).await.is_ok() {
            continue;
        }
        if let Some(engine) = engine.upgrade()
            && engine.now().0 >= at
        {
            engine.armed.store(i64::MAX, Ordering::Release);
            engine.apply(Event::Tick);
        }
    }
}

//! A wait of a caller that holds something: its document says so after a while, and it looks for a deadlock.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::call::Call;
use crate::deadlock::{self, Circle, NestedCall};
use crate::engine::Engine;
use crate::lease::{Entry, Lease};
use crate::store::driver_error;
use crate::timing::{
    DEADLOCK_AGAIN, DEADLOCK_FIRST, DEADLOCK_FOLLOW, DEADLOCK_LAST, DEADLOCK_PAUSE, DEADLOCK_PAUSE_MAX,
    DEADLOCK_SHOWN, LINE_LIMIT,
};
use crate::{LockError, task};

/// The holds around a call.
#[derive(Default)]
pub(crate) struct Enclosing {
    /// Whether one of them is a lock of the same provider that is still held: the caller keeps it until the call ends.
    pub(crate) is_inside_hold: bool,
    /// Their leases, those of other providers as well.
    pub(crate) leases: Vec<Arc<Lease>>,
}

/// The wait of a call; nothing is noted of one that holds nothing, or that does not wait.
pub(super) struct Nested<'a> {
    engine: &'a Arc<Engine>,
    /// The time at which the call ends; `None` if it waits as long as the server replies.
    deadline: Option<Instant>,
    call: Option<Box<NestedCall>>,
}

impl<'a> Nested<'a> {
    pub(super) fn begin(call: &'a Call<'_>, awaited: &Arc<str>, width: usize) -> Self {
        let (engine, holds) = (call.engine, &call.holds);
        let holds_something = !holds.is_empty() || !engine.waits.outer().is_empty();
        let begin = || Box::new(engine.waits.begin(awaited, call.begun, width, holds.clone()));
        Self {
            engine,
            deadline: call.deadline,
            call: (holds_something && !call.is_try).then(begin),
        }
    }

    /// The error of the call, which says that it was in a deadlock.
    pub(super) fn explained(&self, mut error: LockError) -> LockError {
        if let (LockError::Timeout { deadlock, .. }, Some(call)) = (&mut error, &self.call) {
            **deadlock = call.deadlock();
        }
        error
    }

    pub(super) fn is_watched(&self) -> bool {
        self.call.is_some()
    }

    /// Shows the wait after a while, and looks for a deadlock until it is dropped: it does not resolve. `awaited` is what the
    /// call waits for at present; `follows` says that it may change. No query is cut off, because each has a task of its own.
    pub(super) async fn watch<'e>(
        &self,
        begun: Instant,
        follows: bool,
        awaited: impl Fn() -> &'e Arc<Entry> + Send + Sync,
    ) {
        let Some(call) = &self.call else {
            return pending().await;
        };
        let (mut pauses, mut is_shown) = (Pauses::default(), false);
        let mut next = begun + DEADLOCK_SHOWN;
        loop {
            let (now, entry) = (Instant::now(), awaited());
            if call.moves_to(entry.name()) {
                (pauses, is_shown, next) = (Pauses::default(), false, now.max(begun + DEADLOCK_SHOWN));
            }
            if now < next {
                let until = if follows {
                    next.min(now + DEADLOCK_FOLLOW)
                } else {
                    next
                };
                sleep_until(until).await;
                continue;
            }
            if !is_shown {
                self.show(call, entry, begun);
                (is_shown, next) = (true, now + DEADLOCK_FIRST);
                continue;
            }
            let found = match self.look(call, entry.name()).await {
                Ok(found) => {
                    call.found(found.as_ref());
                    found
                }
                Err(error) if driver_error::is_transient(&error) => None,
                // The user has no right to the documents of waiters.
                Err(_) => return pending().await,
            };
            let is_doubtful = found.is_some();
            let (pause, deadlock) = pauses.after(found);
            next = Instant::now() + pause;
            if let Some(circle) = deadlock {
                call.tell(circle);
                next = self.not_after(DEADLOCK_LAST, next);
            } else if !is_doubtful {
                next = self.not_after(DEADLOCK_AGAIN + DEADLOCK_LAST, next);
            }
        }
    }

    /// The time of the next look. A call whose time is nearly up looks before that, so that its error names a deadlock that has
    /// begun late, and none that is over.
    fn not_after(&self, before_the_end: Duration, next: Instant) -> Instant {
        let last = self
            .deadline
            .and_then(|deadline| deadline.checked_sub(before_the_end));
        last.filter(|last| *last > Instant::now())
            .map_or(next, |last| next.min(last))
    }

    /// Has the document of the name say what the caller holds, also if another caller of this process has the lock.
    fn show(&self, call: &NestedCall, entry: &Arc<Entry>, begun: Instant) {
        let Engine {
            lines,
            notifier,
            renewer,
            ..
        } = &**self.engine;
        call.show(renewer.by_task.of_present());
        lines.enter(
            entry.name(),
            entry.user(),
            1,
            notifier.expects_stream(),
            Some(begun),
        );
    }

    /// Looks once for a deadlock. Without a document of its own, which missing rights prevent, none is found.
    async fn look(&self, call: &NestedCall, name: &Arc<str>) -> Result<Option<Circle>, LockError> {
        if self.engine.lines.standing(name).is_none() {
            return Ok(None);
        }
        let (engine, awaited) = (Arc::clone(self.engine), Arc::clone(name));
        let mut outer = call.holds();
        outer.retain(|hold| !engine.mark.is_in(hold));
        let world = task::start(async move {
            if !outer.is_empty() {
                engine
                    .store
                    .note_outer_holds(&engine.mark, &outer, LINE_LIMIT)
                    .await?;
            }
            deadlock::read(&engine.store, awaited).await
        });
        Ok(world.await?.circle(name, &call.holds()))
    }
}

/// The wait of a call that is about to enter the line of a name, and whose task has acquired guards: the document says so.
pub(super) fn with_guards(call: &Call<'_>, entry: &Entry) -> Option<NestedCall> {
    // A call that holds something shows its guards later.
    let guards = if call.holds.is_empty() {
        call.engine.renewer.by_task.of_present()
    } else {
        Vec::new()
    };
    if guards.is_empty() {
        return None;
    }
    let noted = call.engine.waits.begin(entry.name(), call.begun, 1, Vec::new());
    noted.show(guards);
    Some(noted)
}

/// The pauses between the looks of one wait, and what the last one has found.
#[derive(Default)]
struct Pauses {
    found: Option<Circle>,
    last: Option<Duration>,
}

impl Pauses {
    /// The pause after a look, and the deadlock if two looks in a row have found the same.
    fn after(&mut self, found: Option<Circle>) -> (Duration, Option<Circle>) {
        let before = std::mem::replace(&mut self.found, found.clone());
        let is_new = |found: &Circle| !before.is_some_and(|before| found.confirms(&before));
        if found.as_ref().is_some_and(is_new) {
            return (DEADLOCK_AGAIN, None);
        }
        let pause = self
            .last
            .map_or(DEADLOCK_PAUSE, |last| last * 2)
            .min(DEADLOCK_PAUSE_MAX);
        self.last = Some(pause);
        (pause, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_up_to_a_bound() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..7).map(|_| pauses.after(None).0.as_secs()).collect();
        assert_eq!(seconds, [4, 8, 16, 32, 60, 60, 60]);
    }
}

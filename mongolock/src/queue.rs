use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// The queues of this process, one for each name that is held or awaited here; an idle name costs nothing.
///
/// Whoever has the [`Turn`] of a name is alone in this process in holding it or asking the server for it;
/// the others wait in the order in which they came.
#[derive(Default)]
pub(crate) struct Queues {
    names: Mutex<HashMap<Arc<str>, Queue>>,
    idle: Notify,
}

struct Queue {
    turn: Arc<Semaphore>,
    /// The one whose turn it is, and those behind it.
    people: usize,
}

/// The right to hold a name in this process, or to ask the server for it.
pub(crate) struct Turn {
    // Given back before the place is left, so that the next in the queue finds the same semaphore.
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

/// A place in the queue of a name, left on drop.
struct Place {
    queues: Arc<Queues>,
    name: Arc<str>,
}

impl Queues {
    /// Waits for the turn. Cancel safe: a dropped wait leaves the queue.
    pub(crate) async fn enter(self: &Arc<Self>, name: &Arc<str>) -> Turn {
        let (place, turn) = self.stand(name);
        match turn.acquire_owned().await {
            Ok(permit) => Turn {
                _permit: permit,
                _place: place,
            },
            Err(_) => unreachable!("the semaphore of a queue is never closed"),
        }
    }

    /// The turn, if nobody in this process holds or awaits the name.
    pub(crate) fn try_enter(self: &Arc<Self>, name: &Arc<str>) -> Option<Turn> {
        let (place, turn) = self.stand(name);
        let permit = turn.try_acquire_owned().ok()?;
        Some(Turn {
            _permit: permit,
            _place: place,
        })
    }

    fn stand(self: &Arc<Self>, name: &Arc<str>) -> (Place, Arc<Semaphore>) {
        let mut names = lock(&self.names);
        let queue = names.entry(Arc::clone(name)).or_insert_with(|| Queue {
            turn: Arc::new(Semaphore::new(1)),
            people: 0,
        });
        queue.people += 1;
        let place = Place {
            queues: Arc::clone(self),
            name: Arc::clone(name),
        };
        (place, Arc::clone(&queue.turn))
    }

    /// Waits until no name is held or awaited in this process.
    pub(crate) async fn until_idle(&self) {
        loop {
            let notified = self.idle.notified();
            if lock(&self.names).is_empty() {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut names = lock(&self.queues.names);
        if let Some(queue) = names.get_mut(&self.name) {
            queue.people -= 1;
            if queue.people == 0 {
                names.remove(&self.name);
            }
        }
        if names.is_empty() {
            self.queues.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    #[tokio::test]
    async fn turns_come_in_order_and_leave_nothing_behind() {
        let queues = Arc::new(Queues::default());
        let first = queues.enter(&name("n")).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiters = tokio::task::JoinSet::new();
        for index in 0..5 {
            let (queues, order) = (Arc::clone(&queues), Arc::clone(&order));
            waiters.spawn(async move {
                let _turn = queues.enter(&name("n")).await;
                lock(&order).push(index);
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        while waiters.join_next().await.is_some() {}
        assert_eq!(*lock(&order), [0, 1, 2, 3, 4]);
        assert!(lock(&queues.names).is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_waiter_leaves_and_trying_never_waits() {
        let queues = Arc::new(Queues::default());
        let first = queues.try_enter(&name("n")).unwrap();
        assert!(queues.try_enter(&name("n")).is_none());
        assert!(queues.try_enter(&name("other")).is_some());
        let waiter =
            tokio::time::timeout(std::time::Duration::from_millis(1), queues.enter(&name("n"))).await;
        assert!(waiter.is_err());
        drop(first);
        queues.until_idle().await;
        assert!(queues.try_enter(&name("n")).is_some());
    }
}

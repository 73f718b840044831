//! Sends what the core wants to have sent, in the order in which it was decided.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout_at;

use super::cell::Cell;
use super::clock::duration;
use super::faults::{fault, no_reply};
use super::queue::Command;
use super::state::Shell;
use super::stream::watch;
use crate::LockError;
use crate::core::limits::NO_REPLY;
use crate::core::{Event, Fault, Look, Saw, Span};
use crate::protocol::Name;
use crate::store::Store;
use crate::sync::lock;

impl Shell {
    /// Sends what is queued, unless another thread does. The wakes of replies that come at once are left to the caller.
    pub(super) fn send(self: &Arc<Self>, wakers: &mut Vec<Waker>) {
        let mut is_mine = false;
        loop {
            let command = {
                let mut commands = lock(&self.commands);
                if commands.are_sent && !is_mine {
                    return;
                }
                let command = commands.waiting.pop_front();
                (commands.are_sent, is_mine) = (command.is_some(), true);
                command
            };
            let Some(command) = command else { return };
            if let Err(command) = self.send_one(command, wakers) {
                // It goes with the next call that has a runtime.
                let mut commands = lock(&self.commands);
                commands.waiting.push_front(command);
                commands.are_sent = false;
                return;
            }
        }
    }

    /// Sends a command, or gives it back for want of a runtime.
    fn send_one(self: &Arc<Self>, command: Command, wakers: &mut Vec<Waker>) -> Result<(), Command> {
        match command {
            Command::Run(flight, rows, order, limit) => match self.store.run_at_once(&rows, order) {
                Some(replies) => {
                    self.decide(Event::Ran(flight, replies.map_err(fault)), wakers);
                    Ok(())
                }
                None => self.spawn(Command::Run(flight, rows, order, limit)),
            },
            Command::Look(flight, looks, limit) => match self.look_at_once(&looks) {
                Some(saw) => {
                    self.decide(Event::Looked(flight, Ok(saw)), wakers);
                    Ok(())
                }
                None => self.spawn(Command::Look(flight, looks, limit)),
            },
            Command::Watch(..) => self.spawn(command),
            Command::Unwatch => {
                self.end_stream();
                Ok(())
            }
            Command::Idle => {
                self.idle.notify_waiters();
                Ok(())
            }
        }
    }

    fn spawn(self: &Arc<Self>, command: Command) -> Result<(), Command> {
        let Some(runtime) = self.runtime() else {
            return Err(command);
        };
        match command {
            Command::Run(flight, rows, order, limit) => {
                let store = Arc::clone(&self.store);
                let running = async move { store.run_rows(rows, order, duration(limit)).await };
                self.run(&runtime, limit, running, move |result| Event::Ran(flight, result));
            }
            Command::Look(flight, looks, limit) => {
                let store = Arc::clone(&self.store);
                let looking = async move { look_each(&store, &looks, duration(limit)).await };
                self.run(&runtime, limit, looking, move |result| {
                    Event::Looked(flight, result)
                });
            }
            Command::Watch(number, names) => {
                runtime.spawn(watch(Arc::downgrade(self), number, names));
            }
            Command::Unwatch | Command::Idle => {}
        }
        Ok(())
    }

    /// Runs a command until its reply, or for its limit and two seconds. The driver's future ends with its task.
    fn run<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Handle,
        limit: Span,
        command: impl Future<Output = Result<T, LockError>> + Send + 'static,
        event: impl Fn(Result<T, Fault>) -> Event<Arc<Cell>> + Send + Sync + 'static,
    ) {
        let (event, most) = (Arc::new(event), limit + NO_REPLY);
        let by = self.now() + most;
        let without = Arc::clone(&event);
        let ends = Ends {
            shell: Arc::clone(self),
            without_reply: Some(Box::new(move || without(Err(no_reply(duration(most)))))),
        };
        runtime.spawn(async move {
            // One that gets its first turn after that was never sent.
            if ends.shell.now() >= by {
                return;
            }
            let at = ends.shell.clock.instant(by);
            if let Ok(result) = timeout_at(at, command).await {
                ends.with(event(result.map_err(fault)));
            }
        });
    }

    fn look_at_once(&self, looks: &[Look]) -> Option<Vec<Saw>> {
        let saw = |look: &Look| match look {
            Look::Lock(name) => Some(Saw::Lock(self.store.sight_at_once(name))),
            Look::Permits(group) => self.store.permits_at_once(group).map(Saw::Permits),
        };
        if !self.store.never_waits() {
            return None;
        }
        looks.iter().map(saw).collect()
    }
}

/// One query for all locks, and one for each semaphore.
async fn look_each(store: &Store, looks: &[Look], limit: Duration) -> Result<Vec<Saw>, LockError> {
    let name = |look: &Look| match look {
        Look::Lock(name) => Some(name.clone()),
        Look::Permits(_) => None,
    };
    let names: Vec<Name> = looks.iter().filter_map(name).collect();
    let mut found = store.sights(&names, limit).await?;
    let mut saw = Vec::with_capacity(looks.len());
    for look in looks {
        saw.push(match look {
            Look::Lock(name) => Saw::Lock(found.remove(name)),
            Look::Permits(group) => Saw::Permits(store.permits(group, limit).await?),
        });
    }
    Ok(saw)
}

/// Each command ends once for the core, also one whose runtime has ended.
struct Ends {
    shell: Arc<Shell>,
    /// What has happened if there is no reply.
    without_reply: Option<Box<dyn FnOnce() -> Event<Arc<Cell>> + Send>>,
}

impl Ends {
    fn with(mut self, event: Event<Arc<Cell>>) {
        self.without_reply = None;
        self.shell.apply(event);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(event) = self.without_reply.take() {
            self.shell.apply(event());
        }
    }
}

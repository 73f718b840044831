//! Sends the commands of the core, in the order of its decisions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::after::After;
use super::clock::duration;
use super::ends::Ends;
use super::faults::{fault, no_reply};
use super::state::{Command, Engine, Lease};
use super::stream::watch;
use crate::LockError;
use crate::core::limits::NO_REPLY;
use crate::core::{Event, Fault, Look, Saw, Span};
use crate::protocol::Order;
use crate::store::refusals::Refusals;
use crate::store::{NotRun, Store};
use crate::sync::lock;
use crate::task::{at_once, reply_within};

impl Engine {
    /// Sends the queued commands, unless another thread is sending them. The wake-ups for replies that arrive at once
    /// are added to `after`.
    pub(super) fn send(self: &Arc<Self>, after: &mut After) {
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
            if let Some(command) = self.send_one(command, after) {
                // The next call that has a runtime sends it.
                let mut commands = lock(&self.commands);
                commands.waiting.push_front(command);
                commands.are_sent = false;
                return;
            }
        }
    }

    /// Sends a command, or returns it if there is no runtime.
    fn send_one(self: &Arc<Self>, command: Command, after: &mut After) -> Option<Command> {
        match command {
            Command::Unwatch => self.end_stream(),
            Command::Idle => self.idle.notify_waiters(),
            command => match self.at_once(&command) {
                Some(event) => drop(self.decide(event, after)),
                None => return self.spawn(command),
            },
        }
        None
    }

    /// The event for a command, if the store replies at once.
    fn at_once(&self, command: &Command) -> Option<Event<Arc<Lease>>> {
        if !self.store.never_waits() {
            return None;
        }
        let fault = |failed: NotRun, limit: &Span| self.fault(failed, *limit, false);
        match command {
            Command::Run(flight, rows, order, limit) => {
                let replies = at_once(self.store.run(rows, *order, duration(*limit)))?;
                Some(Event::Ran(
                    *flight,
                    replies.map_err(|failed| fault(failed, limit)),
                ))
            }
            Command::Look(flight, looks, limit) => {
                let found = at_once(look_each(&self.store, looks, duration(*limit)))?;
                Some(Event::Looked(
                    *flight,
                    found.map_err(|error| fault(error.into(), limit)),
                ))
            }
            _ => None,
        }
    }

    fn spawn(self: &Arc<Self>, command: Command) -> Option<Command> {
        let Some(runtime) = self.runtime() else {
            return Some(command);
        };
        match command {
            Command::Run(flight, rows, order, limit) => {
                let store = Arc::clone(&self.store);
                let is_group = rows.len() > 1 && order == Order::Each;
                let running = async move { store.run(&rows, order, duration(limit)).await };
                self.run(&runtime, limit, is_group, running, move |result| {
                    Event::Ran(flight, result)
                });
            }
            Command::Look(flight, looks, limit) => {
                let store = Arc::clone(&self.store);
                let looking = async move { look_each(&store, &looks, duration(limit)).await };
                self.run(&runtime, limit, false, looking, move |result| {
                    Event::Looked(flight, result)
                });
            }
            Command::Watch(number, names) => {
                self.begin_stream(number);
                runtime.spawn(watch(Arc::downgrade(self), number, names));
            }
            _ => {}
        }
        None
    }

    /// The fault for a failed command. It depends on how long the server has refused the user, because a refusal may be
    /// temporary.
    fn fault(&self, failed: NotRun, limit: Span, is_group: bool) -> Fault {
        let refused_for = {
            let refusals = &mut *lock(&self.refusals);
            refusals.note(Instant::now(), &failed.error);
            refusals.last_for(Instant::now())
        };
        let is_known = self.store.has_been_connected();
        let refused_for = if is_known { refused_for } else { Duration::MAX };
        fault(failed, limit, is_group, refused_for)
    }

    /// Runs a command until its reply, or for its limit and two seconds. The driver's future ends with its task.
    fn run<T: Send + 'static, E: Into<NotRun> + Send>(
        self: &Arc<Self>,
        runtime: &Handle,
        limit: Span,
        is_group: bool,
        command: impl Future<Output = Result<T, E>> + Send + 'static,
        event: impl Fn(Result<T, Fault>) -> Event<Arc<Lease>> + Send + Sync + 'static,
    ) {
        let (event, most) = (Arc::new(event), limit + NO_REPLY);
        let by = self.now() + most;
        let (engine, without) = (Arc::clone(self), Arc::clone(&event));
        let ends = Ends::new(self, move || without(Err(no_reply(duration(most)))));
        runtime.spawn(async move {
            // A task that is first polled after that time never sends its command.
            if engine.now() >= by {
                return;
            }
            let at = engine.clock.instant(by);
            let mut command = pin!(reply_within(duration(most), command));
            match timeout_at(at, command.as_mut()).await {
                Ok(Some(result)) => {
                    if result.is_ok() {
                        // The server has accepted the user.
                        *lock(&engine.refusals) = Refusals::default();
                    }
                    let result = result.map_err(|error| engine.fault(error.into(), limit, is_group));
                    ends.disarm();
                    engine.apply(event(result));
                }
                Ok(None) => {}
                Err(_) => {
                    drop((ends, engine));
                    // The command may still wait for a connection.
                    command.await;
                }
            }
        });
    }
}

/// Sends one query for all locks, and one for each semaphore.
async fn look_each(store: &Store, looks: &[Look], limit: Duration) -> Result<Vec<Saw>, LockError> {
    let name = |look: &Look| match look {
        Look::Lock(name) => Some(name.clone()),
        Look::Permits(_) => None,
    };
    let names = looks.iter().filter_map(name).collect();
    let mut found = store.sights(names, limit).await?;
    let mut saw = Vec::with_capacity(looks.len());
    for look in looks {
        saw.push(match look {
            Look::Lock(name) => Saw::Lock(found.remove(name)),
            Look::Permits(group) => Saw::Permits(store.permits(group, limit).await?),
        });
    }
    Ok(saw)
}

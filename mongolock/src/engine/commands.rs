//! Takes events: the core decides, its commands are sent in the order of its decisions, and its change stream is read.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use scopeguard::ScopeGuard;
use tokio::time::{Instant, timeout_at};

use super::after;
use super::clock::duration;
use super::ends::ends_with;
use super::faults::{fault, no_reply};
use super::reports::EngineReport;
use super::state::{Command, Decider, Engine, Event, Lease, System};
use crate::core::{self, Core, Effect, Key, Notice, Saw, Span, Time, span};
use crate::home::tell;
use crate::protocol::{Name, RowOrder};
use crate::store::{NotRun, Store};
use crate::sync::lock;
use crate::task::{at_once, reply_within};
use crate::timing::{NO_REPLY, REFUSAL_LIMIT};
use crate::{LockError, permit_id, trace};

/// The greatest number of names for which a provider remembers that a warning was reported once.
const MOST_WARNINGS: usize = 1000;

/// A command that has a reply.
#[derive(Clone, Copy)]
struct SentCommand {
    key: Key,
    /// Its time limit at the server.
    limit: Span,
    /// Whether its rows may also be sent alone.
    is_group: bool,
}

impl Engine {
    /// Takes an event: the core decides, commands are sent in the order in which it decided, and then callers are woken.
    pub(crate) fn apply(self: &Arc<Self>, event: Event) -> Option<Key> {
        if self.is_forked() {
            return None;
        }
        self.take(event)
    }

    /// The same without the check for a forked process, which is a system call.
    pub(super) fn take(self: &Arc<Self>, event: Event) -> Option<Key> {
        let waiter = self.decide(event);
        self.send();
        after::run();
        waiter
    }

    /// Leases are set and commands queued before another thread can decide.
    pub(super) fn decide(&self, event: Event) -> Option<Key> {
        let mut decider = lock(&self.core);
        let Decider {
            core,
            warned,
            renewed,
        } = &mut *decider;
        let now = self.now();
        let waiter = core.handle(now, &mut System, event);
        // Holds whose caller was dropped end here.
        let mut returned = Vec::new();
        loop {
            for effect in core.take_effects() {
                match effect {
                    Effect::Notify(lease, notice) => {
                        if matches!(notice, Notice::Extended(end) if end > now) {
                            *renewed = Some(now);
                        }
                        returned.extend(lease.note(now, notice));
                    }
                    Effect::Report(report) if is_new(warned, &report) => {
                        after::report(EngineReport::Core(report));
                    }
                    Effect::Report(_) => {}
                    command => lock(&self.commands).waiting.push_back(command),
                }
            }
            let Some(event) = returned.pop() else { break };
            core.handle(now, &mut System, event);
        }
        if let Some(at) = core.next_due()
            && self.armed.fetch_min(at.0, Ordering::AcqRel) > at.0
        {
            self.rearmed.notify_one();
        }
        waiter
    }

    /// Sends the queued commands, unless another thread is sending them. Replies that arrive
    /// at once are decided on here.
    pub(super) fn send(self: &Arc<Self>) {
        let next = |is_begin| lock(&self.commands).next(is_begin);
        let mut command = next(true);
        while let Some(present) = command {
            if let Some(unsent) = self.send_one(present) {
                // The next call that has a runtime sends it.
                return lock(&self.commands).put_back(unsent);
            }
            command = next(false);
        }
    }

    /// Sends a command, or returns it if there is no runtime.
    fn send_one(self: &Arc<Self>, command: Command) -> Option<Command> {
        let flight = SentCommand::of(&command);
        if let Some(flight) = flight.filter(|_| self.store.never_waits()) {
            if let Some(result) = at_once(pin!(perform(&self.store, &command))) {
                self.decide(self.ended(flight, result));
            }
            return None;
        }
        match (command, flight, self.runtime()) {
            (Command::Idle, ..) => self.idle.notify_waiters(),
            (command, _, None) => return Some(command),
            (Command::Watch(number, names), _, Some(runtime)) => {
                runtime.spawn(watch(Arc::downgrade(self), number, names));
            }
            (command, Some(flight), Some(runtime)) => {
                let lost = move || Event::Ran(flight.key, Err(no_reply(duration(flight.most()))));
                let (by, ends) = (self.now() + flight.most(), ends_with(self, lost));
                runtime.spawn(run(Arc::clone(self), flight, command, by, ends));
            }
            _ => {}
        }
        None
    }

    /// The event for a command that has ended. What a refusal of the user means depends on how long there have been
    /// refusals, because they may be temporary.
    fn ended(&self, flight: SentCommand, result: Result<Event, NotRun>) -> Event {
        let failed = match result {
            Ok(event) => return event,
            Err(failed) => failed,
        };
        let refusals = &mut *lock(&self.refusals);
        *refusals = refused(*refusals, &failed.error, Instant::now());
        let refused_for = match refusals {
            _ if !self.store.has_been_connected() => Duration::MAX,
            refusals => refusals.map_or(Duration::ZERO, |(first, last)| last - first),
        };
        let fault = fault(failed, flight.limit, flight.is_group, refused_for);
        Event::Ran(flight.key, Err(fault))
    }
}

/// Whether a report is new: a warning is reported once for each name, for [`MOST_WARNINGS`] names at most.
fn is_new(warned: &mut HashSet<Arc<str>>, report: &core::Report<Arc<Lease>>) -> bool {
    let core::Report::PermitsDiffer(name, ..) = report else {
        return true;
    };
    warned.len() < MOST_WARNINGS && warned.insert(Arc::clone(name))
}

impl SentCommand {
    /// `None` for a command without a reply.
    fn of(command: &Command) -> Option<Self> {
        let (key, limit, is_group) = match command {
            Command::Run(key, rows, order, limit) => (key, limit, rows.len() > 1 && *order == RowOrder::Each),
            Command::Look(key, _, limit) => (key, limit, false),
            _ => return None,
        };
        Some(Self {
            key: *key,
            limit: *limit,
            is_group,
        })
    }

    /// The longest time until its reply.
    fn most(self) -> Span {
        self.limit + span(NO_REPLY)
    }
}

/// Runs a command until its reply, or for its limit and two seconds. The driver's future ends with its task.
async fn run<F>(
    engine: Arc<Engine>,
    flight: SentCommand,
    command: Command,
    by: Time,
    ends: ScopeGuard<F, impl FnOnce(F)>,
) {
    // A task that is first polled after that time never sends its command.
    if engine.now() >= by {
        return;
    }
    let (store, at) = (Arc::clone(&engine.store), engine.clock.instant(by));
    let mut running = pin!(reply_within(duration(flight.most()), perform(&store, &command)));
    match timeout_at(at, running.as_mut()).await {
        Ok(Some(result)) => {
            if result.is_ok() {
                // The server has accepted the user.
                *lock(&engine.refusals) = None;
            }
            ScopeGuard::into_inner(ends);
            engine.apply(engine.ended(flight, result));
        }
        Ok(None) => {}
        Err(_) => {
            drop((ends, engine));
            // The command may still wait for a connection.
            running.await;
        }
    }
}

/// Sends a command, and returns the event for its reply.
async fn perform(store: &Store, command: &Command) -> Result<Event, NotRun> {
    Ok(match command {
        Command::Run(key, rows, order, limit) => {
            let replies = store.run(rows, *order, duration(*limit)).await?;
            Event::Ran(*key, Ok(replies))
        }
        Command::Look(key, looks, limit) => {
            let found = look_each(store, looks, duration(*limit)).await?;
            Event::Looked(*key, Ok(found))
        }
        // The other commands have no reply.
        _ => std::future::pending().await,
    })
}

/// Sends one query for all locks and semaphores.
async fn look_each(store: &Store, looks: &[Name], limit: Duration) -> Result<Vec<Saw>, LockError> {
    let mut saws: HashMap<Arc<str>, Saw> = HashMap::new();
    for (name, sight) in store.look(looks.to_vec(), limit).await? {
        let saw = saws.entry(Arc::from(permit_id::awaited(&name))).or_default();
        saw.push((permit_id::number(&name).unwrap_or_default(), sight));
    }
    let saw = |look: &Name| saws.remove(look).unwrap_or_default();
    Ok(looks.iter().map(saw).collect())
}

/// Reads one stream until the next one is open, so that no event is missed in between.
async fn watch(engine: Weak<Engine>, number: u32, names: Option<Vec<Name>>) {
    let Some(present) = engine.upgrade() else { return };
    let store = Arc::clone(&present.store);
    let closed = move |is_lasting| Event::Closed { number, is_lasting };
    // The stream also ends with its runtime, even while it is being opened. The core ignores the end of one that it does not need.
    let _ends = ends_with(&present, move || closed(false));
    drop(present);
    let needed = || {
        let is_needed = |core: &Core<_>| core.reads_stream(number) && !core.refuses(true);
        engine
            .upgrade()
            .filter(|engine| is_needed(&lock(&engine.core).core))
    };
    let opened = store.watch(names.as_deref()).await;
    let Some(present) = needed() else { return };
    let mut news = match opened {
        Ok(news) => news,
        Err(error) => {
            let is_lasting = error.is_without_streams();
            tell(move || trace::wake_up_failed(&error));
            present.apply(closed(is_lasting));
            return;
        }
    };
    present.apply(Event::Opened(number));
    drop(present);
    loop {
        let next = news.next().await;
        let Some(engine) = needed() else { return };
        match next {
            Ok(Some(news)) => drop(engine.apply(Event::News(news))),
            Ok(None) => {}
            Err(error) => return tell(move || trace::wake_up_failed(&error)),
        }
    }
}

/// The first and the last refusal of the user, with this error. After another error, or a long pause, they begin anew.
fn refused(
    before: Option<(Instant, Instant)>,
    error: &LockError,
    now: Instant,
) -> Option<(Instant, Instant)> {
    let before = before.filter(|(_, last)| now - *last < REFUSAL_LIMIT);
    let first = before.map_or(now, |(first, _)| first);
    error.meaning().is_refusal().then_some((first, now))
}

#[cfg(test)]
mod tests {
    use mongodb::error::{Error, ErrorKind};

    use super::*;

    #[test]
    fn refusals_that_follow_each_other_count_from_the_first() {
        let said = serde_json::json!({ "code": 13, "codeName": "", "errmsg": "refused" });
        let said = ErrorKind::Command(serde_json::from_value(said).unwrap());
        let refusal = LockError::from(Error::from(said));
        let other = LockError::no_reply("release", REFUSAL_LIMIT);
        let (begun, mut known) = (Instant::now(), None);
        let mut counted = |seconds, error| {
            known = refused(known, error, begun + Duration::from_secs(seconds));
            known.map(|(first, last)| (last - first).as_secs())
        };
        let first = [0, 9, 10].map(|at| counted(at, &refusal));
        assert_eq!(first, [0, 9, 10].map(Some));
        assert_eq!(counted(20, &refusal), Some(0), "a pause of ten seconds");
        assert_eq!(counted(25, &other), None);
        assert_eq!(counted(31, &refusal), Some(0), "another error was in between");
    }
}

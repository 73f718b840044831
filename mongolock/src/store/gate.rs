use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;

use super::reachability::Reachability;
use crate::LockError;
use crate::error::meaning::Meaning;
use crate::meter::{CommandKind, CommandMeter};
use crate::options::check_database;
use crate::task::with_reply_limit;
use crate::timing::CLOSE_LIMIT;

/// The commands and streams of a store that is closed at the end of a shutdown.
///
/// The driver panics on its own task if the runtime ends while a command of a client is in flight or one of its cursors
/// is open, and `Client::shutdown` waits for all of them. A shutdown therefore ends those of this library itself.
pub(super) struct Gate {
    is_closed: watch::Sender<bool>,
    meter: CommandMeter,
    /// What is known about the servers of the client.
    servers: Arc<Reachability>,
    /// The error of every command, if the database cannot have locks.
    refusal: Option<LockError>,
}

/// A stream that is open, counted until it is dropped.
pub(crate) struct Passage(watch::Receiver<bool>);

impl Gate {
    pub(super) fn new(servers: Arc<Reachability>, database: &str) -> Self {
        Self {
            is_closed: watch::Sender::new(false),
            meter: CommandMeter::default(),
            servers,
            refusal: check_database(database).err(),
        }
    }

    /// The error of every call, if the database cannot have locks, or the hosts of the connection string belong to two
    /// replica sets.
    pub(super) fn check(&self) -> Result<(), LockError> {
        match &self.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => self.servers.two_sets(true),
        }
    }

    /// [`Self::check`] before a command. Commands that renew or end the present holds continue even if the hosts belong
    /// to two replica sets.
    fn admits(&self, is_of_hold: bool) -> Result<(), LockError> {
        match &self.refusal {
            None if is_of_hold => Ok(()),
            _ => self.check(),
        }
    }

    /// The reply to a command, or the error if it may come from one of two replica sets: it is kept until the hosts of the
    /// connection string that the driver has removed have answered.
    async fn trusted<T>(&self, is_of_hold: bool, reply: Result<T, LockError>) -> Result<T, LockError> {
        if is_of_hold || reply.is_err() {
            return reply;
        }
        if self.servers.is_asking() {
            // The future is large and seldom needed.
            Box::pin(self.servers.until_answered()).await;
        }
        self.servers.two_sets(false).and(reply)
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Counts a stream, which ends when the gate is closed.
    pub(super) fn enter(&self) -> Result<Passage, LockError> {
        let passage = Passage(self.is_closed.subscribe());
        if self.is_closed() {
            return Err(Meaning::Closed.error());
        }
        Ok(passage)
    }

    /// Runs a command until its reply, or until the gate is closed. Commands of an operator or a health check may begin
    /// after that. The caller pins the command, because each function that takes it by value would double the size of
    /// its future.
    pub(super) async fn run<T>(
        &self,
        kind: CommandKind,
        command: Pin<&mut impl Future<Output = Result<T, LockError>>>,
    ) -> Result<T, LockError> {
        let counted = Counted::begin(&self.meter, kind);
        let is_of_hold = matches!(kind, CommandKind::Renew | CommandKind::Release);
        self.admits(is_of_hold)?;
        let reply = match (self.enter(), kind) {
            (Ok(mut passage), _) => passage.run(self.send(kind, command)).await,
            (Err(_), CommandKind::Admin | CommandKind::Hello | CommandKind::Index) => {
                self.send(kind, command).await
            }
            (Err(error), _) => return Err(error),
        };
        counted.end(self.trusted(is_of_hold, reply).await)
    }

    /// Waits for the reply to a command. Callers soon get an error if it cannot be sent. The commands of the engine and
    /// of streams have limits of their own.
    async fn send<T>(
        &self,
        kind: CommandKind,
        command: Pin<&mut impl Future<Output = Result<T, LockError>>>,
    ) -> Result<T, LockError> {
        match kind {
            CommandKind::Acquire => self.servers.run(true, command).await,
            CommandKind::Hello => self.servers.run(true, with_reply_limit(command)).await,
            CommandKind::Admin => self.servers.run(false, with_reply_limit(command)).await,
            CommandKind::Index => with_reply_limit(command).await,
            _ => command.await,
        }
    }

    /// Counts a command in a session of the caller. It is not cancelled, because the session belongs to the caller.
    pub(super) async fn count<T>(
        &self,
        kind: CommandKind,
        command: Pin<&mut impl Future<Output = Result<T, LockError>>>,
    ) -> Result<T, LockError> {
        self.admits(false)?;
        Counted::begin(&self.meter, kind).end(command.await)
    }

    /// Ends all commands and streams, and waits until they are dropped: each is dropped by the task that waits for it.
    pub(super) async fn close(&self) {
        self.is_closed.send_replace(true);
        // A task can be late only if its runtime is blocked.
        let _ = timeout(CLOSE_LIMIT, self.is_closed.closed()).await;
    }
}

/// A command that is counted when it ends; one that is dropped has no reply.
struct Counted<'a> {
    meter: &'a CommandMeter,
    kind: CommandKind,
    is_ok: bool,
}

impl<'a> Counted<'a> {
    fn begin(meter: &'a CommandMeter, kind: CommandKind) -> Self {
        Self {
            meter,
            kind,
            is_ok: false,
        }
    }

    fn end<T>(mut self, reply: Result<T, LockError>) -> Result<T, LockError> {
        self.is_ok = reply.is_ok();
        reply
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.meter.count(self.kind, self.is_ok);
    }
}

impl Passage {
    /// Runs a command until its reply, or until the gate is closed; the connection of a dropped command is closed.
    pub(super) async fn run<T>(
        &mut self,
        command: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        tokio::select! {
            biased;
            reply = command => reply,
            // It fails only without a gate, and the gate exists as long as its store.
            _ = self.0.wait_for(|closed| *closed) => Err(Meaning::Closed.error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn closing_ends_commands_and_streams_and_waits_until_they_are_dropped() {
        let gate = Arc::new(Gate::new(Arc::default(), "app"));
        let stream = gate.enter().unwrap();
        let running = Arc::clone(&gate);
        let command = tokio::spawn(async move {
            running
                .run(CommandKind::Renew, pin!(pending::<Result<(), _>>()))
                .await
        });
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        let dropping = async {
            tokio::time::sleep(CLOSE_LIMIT / 2).await;
            drop(stream);
        };
        tokio::join!(gate.close(), dropping);
        assert_eq!(begun.elapsed(), CLOSE_LIMIT / 2);
        let error = command.await.unwrap().unwrap_err();
        assert!(error.meaning() == Meaning::Closed, "{error}");
        assert!(gate.enter().is_err());
        assert!(
            gate.run(CommandKind::Renew, pin!(async { Ok(()) }))
                .await
                .is_err()
        );
        assert!(gate.run(CommandKind::Admin, pin!(async { Ok(()) })).await.is_ok());
    }
}

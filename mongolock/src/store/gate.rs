//! The commands and streams of a store, which is closed at the end of a shutdown.
//!
//! The driver panics on its own task if the runtime ends while a command of a client is in flight or one of its cursors
//! is open, and `Client::shutdown` waits for all of them. A shutdown therefore ends those of this library itself.

use std::future::Future;
use std::pin::{Pin, pin};

use tokio::sync::watch;
use tokio::time::timeout;

use super::mongo::MongoStore;
use crate::LockError;
use crate::error::meaning::Meaning;
use crate::meter::{CommandKind, CommandMeter};
use crate::task::limited;
use crate::timing::{CLOSE_LIMIT, REQUEST_LIMIT};

/// A stream that is open, counted until it is dropped.
pub(crate) struct Passage(watch::Receiver<bool>);

impl MongoStore {
    /// The error of every call, if the database cannot have locks, or the hosts of the connection string belong to two
    /// replica sets.
    pub(super) fn check(&self) -> Result<(), LockError> {
        self.database.clone()?;
        self.servers.two_sets(true)
    }

    /// Begins to count something that ends when the store is closed.
    pub(super) fn enter(&self) -> Result<Passage, LockError> {
        let passage = Passage(self.is_closed.subscribe());
        if *self.is_closed.borrow() {
            return Err(Meaning::Closed.error());
        }
        Ok(passage)
    }

    /// Runs a command until its reply, or until the store is closed; those for which an operator or a health check waits may begin
    /// after that. One in a session of the caller runs to its end. The command is pinned by the caller, because each function that
    /// took it by value would double the size of its future.
    pub(super) async fn pass<T>(
        &self,
        kind: CommandKind,
        command: Pin<&mut impl Future<Output = Result<T, LockError>>>,
    ) -> Result<T, LockError> {
        let counted = Counted {
            meter: &self.meter,
            kind,
            is_ok: false,
        };
        let mut counted = scopeguard::guard(counted, |own| own.meter.count(own.kind, own.is_ok));
        // What renews or ends the present holds goes on if the hosts belong to two replica sets.
        let is_of_hold = matches!(kind, CommandKind::Renew | CommandKind::Release);
        if is_of_hold {
            self.database.clone()?;
        } else {
            self.check()?;
        }
        // Callers soon get an error if it cannot be sent. The commands of the engine and of streams have limits of their own.
        let sending = pin!(async {
            let fails_in_outage = matches!(kind, CommandKind::Acquire | CommandKind::Hello);
            if fails_in_outage || is_of_operator(kind) {
                // After this time its connection must be dead.
                let sent = limited(REQUEST_LIMIT, "command", command);
                self.servers.run(fails_in_outage, sent).await
            } else {
                command.await
            }
        });
        let reply = match self.enter() {
            Ok(mut passage) if kind != CommandKind::Commit => passage.run(sending).await,
            Err(error) if kind != CommandKind::Commit && !is_of_operator(kind) => Err(error),
            _ => sending.await,
        };
        self.servers.overload.note(&reply);
        if !is_of_hold && reply.is_ok() {
            // It may come from one of two replica sets.
            self.servers.until_checked().await;
            self.servers.two_sets(false)?;
        }
        counted.is_ok = reply.is_ok();
        reply
    }

    /// Ends all commands and streams, and waits until they are dropped: each is dropped by the task that waits for it.
    pub(super) async fn close_gate(&self) {
        self.is_closed.send_replace(true);
        // A task can be late only if its runtime is blocked.
        let _ = timeout(CLOSE_LIMIT, self.is_closed.closed()).await;
    }
}

/// Whether an operator, a health check or the check of the index waits for such a command.
fn is_of_operator(kind: CommandKind) -> bool {
    matches!(kind, CommandKind::Admin | CommandKind::Hello | CommandKind::Index)
}

/// A command that is counted when it ends; one that is dropped has no reply.
struct Counted<'a> {
    meter: &'a CommandMeter,
    kind: CommandKind,
    is_ok: bool,
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
    use std::sync::Arc;

    use mongodb::Client;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn closing_ends_commands_and_streams_and_waits_until_they_are_dropped() {
        let client = Client::with_uri_str("mongodb://127.0.0.1:1").await.unwrap();
        let store = MongoStore::new(&client.database("app"), "locks", None, Arc::default());
        let gate = Arc::new(store);
        let stream = gate.enter().unwrap();
        let running = Arc::clone(&gate);
        let command = tokio::spawn(async move {
            running
                .pass(CommandKind::Renew, pin!(pending::<Result<(), _>>()))
                .await
        });
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        let dropping = async {
            tokio::time::sleep(CLOSE_LIMIT / 2).await;
            drop(stream);
        };
        tokio::join!(gate.close_gate(), dropping);
        assert_eq!(begun.elapsed(), CLOSE_LIMIT / 2);
        let error = command.await.unwrap().unwrap_err();
        assert!(error.meaning() == Meaning::Closed, "{error}");
        assert!(gate.enter().is_err());
        assert!(
            gate.pass(CommandKind::Renew, pin!(async { Ok(()) }))
                .await
                .is_err()
        );
        assert!(
            gate.pass(CommandKind::Admin, pin!(async { Ok(()) }))
                .await
                .is_ok()
        );
    }
}

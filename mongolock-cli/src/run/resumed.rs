//! A lease that `run` has resumed: its end and that of its file when the command has ended.

use std::time::Duration;

use mongolock::{LockError, LockProvider};

use crate::acquire::CommandHold;
use crate::cli::RunArguments;
use crate::exit;
use crate::failure::Failure;
use crate::handle_file::Stored;
use crate::input;

/// The handle of `--resume`.
pub(super) struct Resumed {
    stored: Stored,
    /// For how long the lease is detached again; `None` if the lock is released.
    then_detach: Option<Duration>,
}

impl Resumed {
    /// Reads the handle, if a lease is to be resumed.
    pub(super) fn read(arguments: &RunArguments) -> Result<Option<Self>, Failure> {
        let Some(path) = &arguments.resume else {
            if arguments.then_detach.is_some() {
                return Err(Failure::new(
                    "--then-detach needs --resume: it detaches a lease that was resumed",
                ));
            }
            return Ok(None);
        };
        if input::is_standard(path) {
            return Err(Failure::new(
                "--resume - is refused: standard input belongs to the command",
            ));
        }
        let stored = Stored::read(path)?;
        if arguments.then_detach.is_some() {
            stored.check()?;
        }
        Ok(Some(Self {
            stored,
            then_detach: arguments.then_detach,
        }))
    }

    /// The names of the locks, or that of the semaphore.
    pub(super) fn names(&self) -> Vec<String> {
        self.stored.handle.names().map(str::to_owned).collect()
    }

    pub(super) async fn resume(&self, provider: &LockProvider) -> Result<CommandHold, Failure> {
        provider.is_ready().await;
        let handle = &self.stored.handle;
        let resumed = if handle.permit().is_some() {
            provider.resume_permit(handle).await.map(CommandHold::permit)
        } else {
            let guard = provider.resume(handle).await;
            guard.map(|guard| CommandHold::locks(guard, false))
        };
        resumed.map_err(|error| match error {
            LockError::Lost { .. } => {
                let ended = self.stored.no_lease();
                Failure::new(format!("{ended}; the command was not started")).code(exit::LOST)
            }
            error => error.into(),
        })
    }

    /// For how long the lease is detached again; `None` if the lock is released.
    pub(super) fn then_detach(&self) -> Option<Duration> {
        self.then_detach
    }

    /// Detaches the lease again. The new handle is in the file before its lease exists, so that a crash does not lose
    /// it.
    pub(super) async fn detach(&self, hold: CommandHold, ttl: Duration) -> Result<(), Failure> {
        let detaching = hold.detach(ttl);
        let replaced = self.stored.replace(&detaching.handle());
        replaced.map_err(Failure::io("cannot replace the handle, so the lock is released"))?;
        detaching.await?;
        Ok(())
    }

    /// Deletes the file.
    pub(super) fn delete(&self) {
        self.stored.delete().unwrap_or_else(|failure| failure.print());
    }
}

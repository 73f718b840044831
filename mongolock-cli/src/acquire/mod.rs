//! The common part of the commands that acquire: the acquisition, its end by a signal, and the end of the connections.

mod busy;
mod hold;
pub(crate) mod inside;
mod patience;
mod progress;
mod signals;

use std::time::Duration;

use mongolock::{LockError, LockProvider};
use rustix::process::Signal;
use tokio::time::timeout;

pub(crate) use self::hold::CommandHold;
pub(crate) use self::patience::{longest_end, patiently};
pub(crate) use self::signals::{PASSED_ON, Signals};

use crate::cli::{ConnectionArguments, WantedLocks};
use crate::connection::CLOSING_LIMIT;
use crate::exit::Exit;
use crate::failure::Failure;

/// Does the work of a command that acquires. The renewals have a thread of their own, so that the main thread may block, and
/// can start commands: on Linux a command ends with the thread that has started it.
pub(crate) fn in_runtime(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Failure::io("cannot start"))?;
    let ending = runtime.block_on(work);
    // Requests in flight must not delay the end.
    runtime.shutdown_background();
    ending
}

/// Acquires the locks, for work that may be done once in each period.
pub(crate) async fn acquire(
    provider: &LockProvider,
    wanted: &WantedLocks,
    once_per: Option<Duration>,
    connection: &ConnectionArguments,
) -> Result<CommandHold, Failure> {
    if wanted.names.len() > 1 && (wanted.permits.is_some() || once_per.is_some()) {
        return Err(Failure::new("--permits and --once-per take one name"));
    }
    let acquiring = async {
        // The time of `--wait` is for the lock, and not for the connection. If no server replies, the acquisition
        // reports the reason.
        if !wanted.no_wait {
            provider.is_ready().await;
        }
        inside::refuse(provider, wanted).await?;
        let busy = match CommandHold::acquire(provider, wanted, once_per).await {
            Ok(Some(hold)) => return Ok(hold),
            Ok(None) => None,
            Err(done @ LockError::Done { .. }) => {
                let done = Failure::new(format!("{done}; the command was not run"));
                return Err(done.with(Exit::OK));
            }
            Err(error @ (LockError::Timeout { .. } | LockError::Busy { .. })) => Some(error),
            Err(error) => return Err(error.into()),
        };
        Err(busy::failure(provider, wanted, once_per.is_some(), connection, busy).await)
    };
    // A large future, which its callers would copy.
    progress::shown(provider, wanted, Box::pin(acquiring)).await
}

/// Waits for a result; a signal ends the wait and then the program, without a message, also if there is a result.
pub(crate) async fn unless_interrupted<T>(
    signals: &mut Signals,
    waiting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let signal = tokio::select! {
        biased;
        signal = signals.next() => signal,
        result = waiting => return result,
    };
    Err(interrupted(signal))
}

/// The end of this program by a signal, without a message.
pub(crate) fn interrupted(signal: Signal) -> Failure {
    Failure::new("").with(match signal {
        Signal::INT | Signal::QUIT => Exit::Signal(signal),
        signal => Exit::of_signal(signal.as_raw()),
    })
}

/// Ends the holds and the connections; a server that does not reply delays the end only briefly.
pub(crate) async fn close(provider: &LockProvider) {
    let _ = timeout(CLOSING_LIMIT, provider.shutdown()).await;
}

//! The side of a process that a demonstration has started: its hidden options, its parent, and the events that it
//! sends.

use std::env;
use std::io;
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mongodb::{Client, Database};
use serde::Serialize;
use tokio::sync::watch;

use crate::print;

/// The exit status of a worker that has lost its parent.
const PARENT_IS_GONE: i32 = 3;

/// What a worker prints when it waits for [`ready`].
pub(crate) const READY: &str = "ready";

/// How long a worker may take to end after [`stop_with_parent`].
const GRACE: Duration = Duration::from_secs(10);

/// The options of a worker process, which the help does not show. A demonstration adds them to its own command line.
#[derive(Debug, Clone, Args)]
#[group(requires_all = ["worker", "database"], multiple = true)]
pub struct Worker {
    /// The number of this process, from 1.
    #[arg(long = "worker", id = "worker", hide = true, required = false)]
    pub number: u32,

    /// The name of the database of the demonstration.
    #[arg(long, hide = true, required = false)]
    database: String,
}

impl Worker {
    /// The database of the demonstration.
    ///
    /// # Errors
    /// When `MONGODB_URI`, which names the server, is not set or is not a connection string.
    pub async fn database(&self) -> anyhow::Result<Database> {
        let uri = env::var("MONGODB_URI").context("MONGODB_URI is not set for a worker")?;
        Ok(Client::with_uri_str(uri).await?.database(&self.database))
    }
}

/// Sends an event to the parent, as a line of JSON.
///
/// A line is written at once and is far below the size up to which a pipe does not split writes: the lines of several
/// processes do not mix.
///
/// # Errors
/// When the parent is gone.
pub fn send(event: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string(event)?)
}

/// Ends this process when its parent is gone, however that happens.
pub fn exit_with_parent() {
    drop(go());
}

/// Like [`exit_with_parent`]; the signal comes with the parent's `Processes::go`.
#[must_use]
pub fn go() -> Signal {
    let (go, received) = watch::channel(false);
    follow_parent(
        move || {
            go.send_replace(true);
        },
        || process::exit(PARENT_IS_GONE),
    );
    Signal(received)
}

/// Tells the parent that this process is ready, and waits until all others are. The process ends when its parent is
/// gone.
///
/// # Errors
/// When the parent is gone.
pub async fn ready() -> anyhow::Result<()> {
    let go = go();
    print(READY)?;
    go.wait().await
}

/// The signal comes when this process is to end in an orderly way: its parent has called `Processes::stop`, or is gone.
/// The process exits by itself if that takes longer than ten seconds.
#[must_use]
pub fn stop_with_parent() -> Signal {
    let (stop, received) = watch::channel(false);
    follow_parent(
        || {},
        move || {
            stop.send_replace(true);
            thread::sleep(GRACE);
            process::exit(PARENT_IS_GONE);
        },
    );
    Signal(received)
}

/// Kills this process when the one that started it is gone, even while it is stopped by a signal and does not notice the
/// end of its standard input. Call it in a process that was started by a main thread, because the end of that thread
/// counts.
///
/// Only Linux does that. Elsewhere a stopped process may stay behind when its parent is killed; `kill -CONT` lets it
/// end.
///
/// # Errors
/// When the system refuses the request.
pub fn killed_with_parent() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("cannot ask for a signal at the end of the parent")?;
    Ok(())
}

/// A signal of the parent.
#[derive(Debug, Clone)]
pub struct Signal(watch::Receiver<bool>);

impl Signal {
    /// Waits for the signal; returns at once when it has come before. Cancel safe.
    ///
    /// # Errors
    /// When the signal cannot come any more, because the parent is gone.
    pub async fn wait(&self) -> anyhow::Result<()> {
        let mut signal = self.0.clone();
        let received = signal.wait_for(|received| *received).await;
        received.map(drop).context("the parent is gone")
    }
}

/// Standard input is a pipe from the parent: a line means "go on", and the end of the pipe means that the parent has
/// closed it or is gone.
fn follow_parent(on_line: impl Fn() + Send + 'static, at_end: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        io::stdin().lines().map_while(Result::ok).for_each(|_| on_line());
        at_end();
    });
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        worker: Option<Worker>,
    }

    #[test]
    fn a_process_is_a_worker_only_with_both_options() {
        let parse = |arguments: &[&str]| Options::try_parse_from(arguments);
        assert!(parse(&["program"]).unwrap().worker.is_none());
        let both = parse(&["program", "--worker", "2", "--database", "d"]);
        assert_eq!(both.unwrap().worker.unwrap().number, 2);
        assert!(parse(&["program", "--worker", "2"]).is_err());
        assert!(parse(&["program", "--database", "d"]).is_err());
    }
}

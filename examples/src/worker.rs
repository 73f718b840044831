//! The side of a process that a demonstration has started: its hidden options, its parent, and the events that it
//! sends.

use std::env;
use std::io;
use std::process;
use std::thread;

use anyhow::Context;
use clap::Args;
use mongodb::{Client, Database};
use mongolock::{LockProvider, LockProviderBuilder};
use serde::Serialize;
use tokio::sync::watch;

use crate::print;

/// The exit status of a worker that has lost its parent.
const PARENT_IS_GONE: i32 = 3;

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
    pub async fn database(&self) -> anyhow::Result<Database> {
        let uri = env::var("MONGODB_URI").context("MONGODB_URI is not set for a worker")?;
        Ok(Client::with_uri_str(uri).await?.database(&self.database))
    }
}

/// Sets the global provider of this process, as other processes see it: `process 2`.
pub fn set_global(number: u32, locks: LockProviderBuilder) -> anyhow::Result<LockProvider> {
    let locks = locks.owner(format!("process {number}")).build()?;
    locks.clone().set_global()?;
    Ok(locks)
}

/// Sends an event to the parent, as a line of JSON.
///
/// A line is written at once and is far below the size up to which a pipe does not split writes: the lines of several
/// processes do not mix.
pub fn send(event: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string(event)?)
}

/// The signal of the parent's `Processes::go`. From now on this process ends when its parent is gone, however that happens.
///
/// Linux kills it then, also while it is stopped by a signal and does not notice the end of its standard input. Elsewhere such
/// a process may stay behind when its parent is killed; `kill -CONT` lets it end. The end of the thread counts that has
/// started this process: it must be a main thread.
#[must_use]
pub fn go() -> Signal {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let (go, received) = watch::channel(false);
    thread::spawn(move || {
        // Standard input is a pipe from the parent: it ends when the parent has closed it or is gone.
        for _ in io::stdin().lines().map_while(Result::ok) {
            go.send_replace(true);
        }
        process::exit(PARENT_IS_GONE);
    });
    Signal(received)
}

/// Ends this process when its parent is gone.
pub fn exit_with_parent() {
    drop(go());
}

/// A signal of the parent.
#[derive(Debug, Clone)]
pub struct Signal(watch::Receiver<bool>);

impl Signal {
    /// Whether the signal has come.
    #[must_use]
    pub fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the signal; returns at once when it has come before. Without the parent, the process ends. Cancel safe.
    pub async fn wait(&self) {
        let mut signal = self.0.clone();
        let _ = signal.wait_for(|received| *received).await;
    }
}

//! Processes that are stopped in the middle of their work, as by a debugger or a machine that swaps.

use std::process::Child;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// A stopped process; it goes on when this value is dropped.
///
/// Drop it before its [`Processes`](crate::processes::Processes): those wait for the end, which a stopped process
/// does not come to.
#[derive(Debug)]
#[must_use = "the process goes on when this value is dropped"]
pub struct Paused(Pid);

impl Paused {
    /// Stops it with `SIGSTOP`, which no process can refuse.
    ///
    /// # Errors
    /// When it cannot be stopped.
    pub fn stop(child: &Child) -> anyhow::Result<Self> {
        let pid = Pid::from_child(child);
        kill_process(pid, Signal::STOP).context("cannot stop a process")?;
        Ok(Self(pid))
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Ends this process when the one that started it is gone, even if this one is stopped then and would not notice
/// the end of its standard input. Call it in a process that the main thread has started: its end is what counts.
///
/// Only Linux does that. Elsewhere a stopped process may be left when its parent is killed; `kill -CONT` lets it end.
///
/// # Errors
/// When the system refuses it.
pub fn killed_with_parent() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot ask for a signal at the parent's end")?;
    Ok(())
}

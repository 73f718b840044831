//! A process that is stopped from outside.

use std::process::Child;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// A stopped process. It goes on when this value is dropped, so that it can end as the others do.
#[derive(Debug)]
pub(crate) struct Stopped(Pid);

impl Stopped {
    /// Stops a process that has not been waited for.
    pub(crate) fn stop(process: &Child) -> anyhow::Result<Self> {
        let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let id = id.context("a process has no usable id")?;
        kill_process(id, Signal::STOP).context("cannot stop a process")?;
        Ok(Self(id))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

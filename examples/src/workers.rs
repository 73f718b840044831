//! The side of a demonstration that starts further processes of its own program and reads what they print.

use std::env;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

use crate::demo::Stage;

impl Stage {
    /// Starts this program as the workers with these numbers: with the options of this run, with `more`, and with those of
    /// [`Worker`](crate::worker::Worker). The connection string may contain a password and is passed in the environment.
    pub fn start_workers(&self, numbers: RangeInclusive<u32>, more: &[&str]) -> anyhow::Result<Processes> {
        let file = env::current_exe().context("cannot find the file of this program")?;
        Processes::start(numbers, |number| {
            let mut command = Command::new(&file);
            command
                .env("MONGODB_URI", self.uri())
                .args(env::args_os().skip(1))
                .args(more);
            command.args([
                "--worker",
                &number.to_string(),
                "--database",
                self.database().name(),
            ]);
            command
        })
    }
}

/// Started processes with a common pipe for their output. Each ends with its standard input, at the latest when this
/// process ends. Dropping this value waits for their end.
#[derive(Debug)]
pub struct Processes {
    /// The processes with their numbers, without those that were killed.
    processes: Vec<(u32, Child)>,
    output: Lines<BufReader<pipe::Receiver>>,
}

impl Processes {
    /// Starts a command for each of these numbers. All of them write to one pipe, which keeps the order of their lines.
    pub fn start(numbers: RangeInclusive<u32>, command: impl Fn(u32) -> Command) -> anyhow::Result<Self> {
        // The pipe ends with the last process: this function drops its own end for writing.
        let (reader, writer) = io::pipe().context("cannot create a pipe")?;
        let reader = pipe::Receiver::from_owned_fd(reader.into()).context("cannot read from a pipe")?;
        let (processes, output) = (Vec::new(), BufReader::new(reader).lines());
        let mut started = Self { processes, output };
        for number in numbers {
            let mut command = command(number);
            // Ctrl-Z and `fg` in the terminal must not resume a stopped process too early.
            command
                .stdin(Stdio::piped())
                .stdout(writer.try_clone()?)
                .process_group(0);
            let child = command.spawn().context("cannot start a process")?;
            started.processes.push((number, child));
        }
        Ok(started)
    }

    /// The next line of any process; `None` after the end of the last one. Cancel safe.
    pub async fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        let line = self.output.next_line().await;
        line.context("cannot read the output of a process")
    }

    /// The next event that a process has [sent](crate::worker::send); `None` after the end of the last one. Cancel safe.
    pub async fn next<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        let Some(line) = self.next_line().await? else {
            return Ok(None);
        };
        let event = serde_json::from_str(&line);
        event.with_context(|| format!("a process has printed {line:?}, which is not an event"))
    }

    /// Lets the processes go on that wait for it.
    pub fn go(&mut self) -> anyhow::Result<()> {
        for (_, child) in &mut self.processes {
            let input = child.stdin.as_mut().context("its input is closed")?;
            writeln!(input, "go").context("a process has ended")?;
        }
        Ok(())
    }

    /// Stops the process with this number with `SIGSTOP`, as a debugger does, or a machine that swaps.
    pub fn pause(&self, number: u32) -> anyhow::Result<Paused> {
        let pid = Pid::from_child(&self.processes[self.index(number)?].1);
        kill_process(pid, Signal::STOP).context("cannot stop a process")?;
        Ok(Paused(pid))
    }

    /// Kills the process with this number: no destructor runs, and no lock is released.
    pub fn kill(&mut self, number: u32) -> anyhow::Result<()> {
        let (_, mut child) = self.processes.remove(self.index(number)?);
        child.kill().context("cannot kill a process")?;
        child.wait().map(drop).context("cannot wait for a process")
    }

    fn index(&self, number: u32) -> anyhow::Result<usize> {
        let index = self.processes.iter().position(|(own, _)| *own == number);
        index.with_context(|| format!("there is no process {number}"))
    }

    /// Waits for the end of all processes, and returns how those ended that failed. What they still print is discarded.
    pub async fn failures(&mut self) -> anyhow::Result<Vec<String>> {
        while self.next_line().await?.is_some() {}
        let mut failures = Vec::new();
        for (number, child) in &mut self.processes {
            let status = child.wait().context("cannot wait for a process")?;
            failures.extend((!status.success()).then(|| format!("process {number}: {status}")));
        }
        Ok(failures)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.processes {
            drop(child.stdin.take());
        }
        for (_, child) in &mut self.processes {
            // The process ends by itself; waiting keeps the server up until then.
            let _ = child.wait();
        }
    }
}

/// A stopped process, which goes on when this value is dropped.
///
/// Drop it before its [`Processes`], whose drop waits for the end of the process.
#[derive(Debug)]
#[must_use = "the process goes on when this value is dropped"]
pub struct Paused(Pid);

impl Drop for Paused {
    fn drop(&mut self) {
        // The process may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

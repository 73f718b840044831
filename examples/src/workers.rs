//! The side of a demonstration that starts further processes of its own program and reads what they print.

use std::env;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::demo::Stage;
use crate::worker::READY;

/// The limit for the start of all processes; it takes far less, even on a busy machine.
pub const START_LIMIT: Duration = Duration::from_secs(60);

impl Stage {
    /// This program, to be run again on the same server. The connection string may contain a password and is passed in
    /// the environment.
    ///
    /// # Errors
    /// When the file of the program cannot be found.
    pub fn program(&self) -> anyhow::Result<Command> {
        let file = env::current_exe().context("cannot find the file of this program")?;
        let mut command = Command::new(file);
        command.env("MONGODB_URI", self.uri());
        Ok(command)
    }

    /// This program as the worker with this number: with the options of this run, and those of
    /// [`Worker`](crate::worker::Worker).
    ///
    /// # Errors
    /// When the file of the program cannot be found.
    pub fn worker(&self, number: u32) -> anyhow::Result<Command> {
        let mut command = self.program()?;
        command
            .args(env::args_os().skip(1))
            .args(["--worker", &number.to_string()])
            .args(["--database", self.database().name()]);
        Ok(command)
    }

    /// Starts the workers with these numbers.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start_workers(&self, numbers: RangeInclusive<u32>) -> anyhow::Result<Processes> {
        Processes::start(numbers, |number| self.worker(number))
    }
}

/// Started processes with a common pipe for their output. Each ends with its standard input, at the latest when this
/// process ends. Dropping this value waits for their end.
#[derive(Debug)]
pub struct Processes {
    processes: Vec<Process>,
    output: Lines<BufReader<pipe::Receiver>>,
}

#[derive(Debug)]
struct Process {
    number: u32,
    child: Child,
    was_killed: bool,
}

impl Processes {
    /// Starts a command for each of these numbers. All of them write to one pipe, which keeps the order of their lines.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(
        numbers: RangeInclusive<u32>,
        command: impl Fn(u32) -> anyhow::Result<Command>,
    ) -> anyhow::Result<Self> {
        // The pipe ends with the last process: this function drops its own end for writing.
        let (reader, writer) = io::pipe().context("cannot create a pipe")?;
        let reader = pipe::Receiver::from_owned_fd(reader.into()).context("cannot read from a pipe")?;
        let mut started = Self {
            processes: Vec::new(),
            output: BufReader::new(reader).lines(),
        };
        for number in numbers {
            let mut command = command(number)?;
            command.stdin(Stdio::piped()).stdout(writer.try_clone()?);
            let child = command.spawn().context("cannot start a process")?;
            started.processes.push(Process {
                number,
                child,
                was_killed: false,
            });
        }
        Ok(started)
    }

    /// The next line of any process; `None` after the end of the last one. Cancel safe.
    ///
    /// # Errors
    /// When the pipe cannot be read.
    pub async fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        let line = self.output.next_line().await;
        line.context("cannot read the output of a process")
    }

    /// The next event that a process has [sent](crate::worker::send); `None` after the end of the last one. Cancel safe.
    ///
    /// # Errors
    /// When the pipe cannot be read, or a line is not an event.
    pub async fn next<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        let Some(line) = self.next_line().await? else {
            return Ok(None);
        };
        let event = serde_json::from_str(&line);
        event.with_context(|| format!("a process has printed {line:?}, which is not an event"))
    }

    /// Waits until each process is [`ready`](crate::worker::ready); none goes on before [`go`](Self::go).
    ///
    /// # Errors
    /// When one ends or prints something else before, or takes longer than [`START_LIMIT`].
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let all_ready = async {
            for _ in 0..self.processes.len() {
                let line = self.next_line().await?.unwrap_or_default();
                ensure!(line == READY, "a process has printed {line:?} at its start");
            }
            Ok(())
        };
        let in_time = timeout(START_LIMIT, all_ready).await;
        in_time.context("the processes did not start in time")?
    }

    /// Lets the processes go on that wait for it.
    ///
    /// # Errors
    /// When one has ended.
    pub fn go(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            let input = process.child.stdin.as_mut();
            let input = input.context("a process was asked to end before")?;
            writeln!(input, "go").context("a process has ended")?;
        }
        Ok(())
    }

    /// Stops the first process with `SIGSTOP`, as a debugger does, or a machine that swaps.
    ///
    /// # Errors
    /// When it cannot be stopped.
    pub fn pause(&self) -> anyhow::Result<Paused> {
        let first = self.processes.first().context("no process was started")?;
        let pid = Pid::from_child(&first.child);
        kill_process(pid, Signal::STOP).context("cannot stop a process")?;
        Ok(Paused(pid))
    }

    /// Kills the process with this number: no destructor runs, and no lock is released. [`failures`](Self::failures)
    /// does not name it.
    ///
    /// # Errors
    /// When it cannot be killed or waited for.
    pub fn kill(&mut self, number: u32) -> anyhow::Result<()> {
        let mut processes = self.processes.iter_mut();
        let process = processes.find(|process| process.number == number);
        let process = process.with_context(|| format!("there is no process {number}"))?;
        process.was_killed = true;
        process.child.kill().context("cannot kill a process")?;
        process.child.wait().context("cannot wait for a process")?;
        Ok(())
    }

    /// Asks all processes to end, and does not wait for it.
    pub fn stop(&mut self) {
        for process in &mut self.processes {
            drop(process.child.stdin.take());
        }
    }

    /// Whether a process that was not killed has ended.
    pub fn has_one_ended(&mut self) -> bool {
        let mut alive = self.processes.iter_mut().filter(|process| !process.was_killed);
        alive.any(|process| !matches!(process.child.try_wait(), Ok(None)))
    }

    /// Waits for the end of all processes, and returns how those ended that failed. What they still print is discarded.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub async fn failures(&mut self) -> anyhow::Result<Vec<String>> {
        while self.next_line().await?.is_some() {}
        let mut failures = Vec::new();
        for process in &mut self.processes {
            let status: ExitStatus = process.child.wait().context("cannot wait for a process")?;
            if !status.success() && !process.was_killed {
                failures.push(format!("process {}: {status}", process.number));
            }
        }
        Ok(failures)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.stop();
        for process in &mut self.processes {
            // The process ends by itself; waiting keeps the server up until then.
            let _ = process.child.wait();
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

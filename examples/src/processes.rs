//! Further processes of the running program: started with arguments of their own, and gone when it is.
//!
//! A started process finds the server in `MONGODB_URI` and calls [`exit_with_parent`] or [`stop_with_parent`] first.

use std::env;
use std::io::{self, Read};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mongodb::{Client, Database};
use tokio::sync::oneshot;

/// How a started process ends when the program that started it is gone.
pub const PARENT_IS_GONE: i32 = 3;

/// How long a stopped process may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// How often to look whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The processes. Each ends when its standard input does, at the latest when this process is gone.
#[derive(Debug, Default)]
pub struct Processes(Vec<Process>);

#[derive(Debug)]
struct Process {
    child: Child,
    killed: bool,
}

/// What a program tells the processes that it starts on their command lines, hidden in its help.
#[derive(Debug, Args)]
#[group(requires_all = ["worker", "database"], multiple = true)]
pub struct Worker {
    /// The number of this process.
    #[arg(long = "worker", id = "worker", hide = true, required = false)]
    pub number: u32,

    /// The database to work in.
    #[arg(long, hide = true, required = false)]
    pub database: String,
}

/// The running program once more, for [`Processes::start`]: the connection string may hold a password and travels in
/// the environment.
///
/// # Errors
/// When the program's own file cannot be found.
pub fn again(uri: &str) -> anyhow::Result<Command> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.env("MONGODB_URI", uri).stdin(Stdio::piped());
    Ok(command)
}

/// The database of this name on the server that [`again`] has named, for a started process.
///
/// # Errors
/// When the server is not named, or the driver refuses its name.
pub async fn database(name: &str) -> anyhow::Result<Database> {
    let uri = env::var("MONGODB_URI").context("MONGODB_URI is not set for a started process")?;
    Ok(Client::with_uri_str(uri).await?.database(name))
}

impl Processes {
    /// Starts one more, made with [`again`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, mut command: Command) -> anyhow::Result<&mut Child> {
        let child = command.spawn().context("cannot start a process")?;
        let started = Process { child, killed: false };
        self.0.push(started);
        let last = self.0.last_mut().context("it was started")?;
        Ok(&mut last.child)
    }

    /// Kills the one that was started as the `number`th, counted from 1: no destructor runs, and no lock is released.
    /// It has not failed then.
    ///
    /// # Errors
    /// When there is none, or it cannot be killed or waited for.
    pub fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        let process = number.checked_sub(1).and_then(|index| self.0.get_mut(index));
        let process = process.with_context(|| format!("there is no process {number}"))?;
        process.killed = true;
        process
            .child
            .kill()
            .and_then(|()| process.child.wait())
            .map(drop)
            .context("cannot kill a process")
    }

    /// Tells all of them to end, and does not wait for it.
    pub fn stop(&mut self) {
        for process in &mut self.0 {
            drop(process.child.stdin.take());
        }
    }

    /// Whether one has ended that was not killed.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn has_one_ended(&mut self) -> anyhow::Result<bool> {
        for process in self.0.iter_mut().filter(|process| !process.killed) {
            if process.has_ended()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for all of them and blocks no thread meanwhile. Cancel safe: they go on, and end when this value is
    /// dropped.
    ///
    /// # Errors
    /// When the system does not say.
    pub async fn all_ended(&mut self) -> anyhow::Result<()> {
        for process in &mut self.0 {
            while !process.has_ended()? {
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// Waits for all of them, and says which failed.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub fn failures(&mut self) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        for (index, process) in self.0.iter_mut().enumerate() {
            let status = process.child.wait().context("cannot wait for a process")?;
            if !status.success() && !process.killed {
                failures.push(format!("process {}: {status}", index + 1));
            }
        }
        Ok(failures)
    }
}

impl Process {
    fn has_ended(&mut self) -> anyhow::Result<bool> {
        let status = self.child.try_wait().context("cannot look at a process")?;
        Ok(status.is_some())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.stop();
        for process in &mut self.0 {
            // It ends by itself; waiting only keeps the server up until then.
            let _ = process.child.wait();
        }
    }
}

/// Ends this process when the one that started it is gone, however that happens.
pub fn exit_with_parent() {
    thread::spawn(|| {
        wait_for_the_end_of_input();
        process::exit(PARENT_IS_GONE);
    });
}

/// The future is ready when this process is to end in an orderly way: [`Processes::stop`] was called, or the parent
/// is gone. The process exits by itself if that takes longer than ten seconds.
pub fn stop_with_parent() -> impl Future<Output = ()> {
    let (stop, stopped) = oneshot::channel();
    thread::spawn(move || {
        wait_for_the_end_of_input();
        // Nobody listens any more: the process is about to end.
        let _ = stop.send(());
        thread::sleep(GRACE);
        process::exit(PARENT_IS_GONE);
    });
    async {
        // The sender is dropped only after it has sent.
        let _ = stopped.await;
    }
}

/// Standard input is a pipe that the parent never writes to. It ends when the parent closes it, at the latest when
/// the parent is gone.
fn wait_for_the_end_of_input() {
    let mut nothing = [0];
    while io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
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
    fn only_started_processes_are_workers() {
        let told = |arguments: &[&str]| Options::try_parse_from(arguments);
        assert!(told(&["program"]).unwrap().worker.is_none());
        let started = told(&["program", "--worker", "2", "--database", "d"]).unwrap();
        assert_eq!(started.worker.unwrap().number, 2);
        assert!(told(&["program", "--worker", "2"]).is_err());
        assert!(told(&["program", "--database", "d"]).is_err());
    }
}

//! Further processes of the running program: started with arguments of their own, and gone when it is.
//!
//! A started process finds the server in `MONGODB_URI` and calls [`exit_with_parent`] first.

use std::env;
use std::io::{self, Read};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use mongodb::{Client, Database};

/// How a started process ends when the program that started it is gone.
pub const PARENT_IS_GONE: i32 = 3;

/// How often to look whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The processes. Each ends when its standard input does, at the latest when this process is gone.
#[derive(Debug, Default)]
pub struct Processes(Vec<Child>);

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
        self.0.push(command.spawn().context("cannot start a process")?);
        self.0.last_mut().context("it was started")
    }

    /// Kills all of them: no destructor runs, and no lock is released.
    ///
    /// # Errors
    /// When one cannot be killed or waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        for child in &mut self.0 {
            child
                .kill()
                .and_then(|()| child.wait())
                .context("cannot kill a process")?;
        }
        Ok(())
    }

    /// Waits for all of them and blocks no thread meanwhile. Cancel safe: they go on, and end when this value is
    /// dropped.
    ///
    /// # Errors
    /// When one cannot be waited for.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        for child in &mut self.0 {
            while child.try_wait().context("cannot wait for a process")?.is_none() {
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
        for (index, child) in self.0.iter_mut().enumerate() {
            let status = child.wait().context("cannot wait for a process")?;
            if !status.success() {
                failures.push(format!("process {}: {status}", index + 1));
            }
        }
        Ok(failures)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.stdin.take()));
        for child in &mut self.0 {
            // It ends by itself; waiting only keeps the server up until then.
            let _ = child.wait();
        }
    }
}

/// Ends this process when the one that started it is gone, however that happens: standard input is a pipe that the
/// parent never writes to, and it ends with the parent.
pub fn exit_with_parent() {
    thread::spawn(|| {
        let mut nothing = [0];
        while io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
        process::exit(PARENT_IS_GONE);
    });
}

//! Other processes of the benchmark: this program again, with a job.

use std::process::Stdio;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::setting::Setting;
use crate::worker::{Job, Order};

/// A process with a job; it ends with this value.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the process and waits until it is ready.
    pub(crate) async fn start(setting: &Setting, job: Job) -> anyhow::Result<Self> {
        Self::start_with(setting, job, &[]).await
    }

    /// The same for a server at this address, which may be a proxy.
    pub(crate) async fn start_at(setting: &Setting, uri: &str, job: Job) -> anyhow::Result<Self> {
        Self::spawn(setting, uri, job, &[]).await
    }

    /// The same, with these variables in the environment of the process.
    pub(crate) async fn start_with(
        setting: &Setting,
        job: Job,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::spawn(setting, setting.uri(), job, variables).await
    }

    async fn spawn(
        setting: &Setting,
        uri: &str,
        job: Job,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let order = Order {
            uri: uri.to_owned(),
            database: setting.database_name().to_owned(),
            job,
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--worker", &serde_json::to_string(&order)?])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("the input is a pipe")?;
        let output = child.stdout.take().context("the output is a pipe")?;
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        };
        process.line().await?;
        Ok(process)
    }

    /// Starts the next step of the job.
    pub(crate) async fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.input.write_all(b"go\n").await?)
    }

    /// The result of a step.
    pub(crate) async fn result<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        Ok(serde_json::from_str(&self.line().await?)?)
    }

    /// Separates the process from what it prints, which is then read while the process runs.
    pub(crate) fn split(self) -> (Running, Output) {
        let Self { child, input, output } = self;
        (Running { child, input }, Output(output))
    }

    /// Waits for the end of the process.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.child.wait().await?;
        Ok(())
    }

    /// Kills the process.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        self.output
            .next_line()
            .await?
            .context("a process of the benchmark ended early")
    }
}

/// A process whose output is read by another task.
pub(crate) struct Running {
    child: Child,
    input: ChildStdin,
}

impl Running {
    /// Starts the next step of the job.
    pub(crate) async fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.input.write_all(b"go\n").await?)
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(Pid::from_raw).context("the process has ended")?;
        Ok(kill_process(id, signal)?)
    }

    /// Kills the process.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits for the end of the process.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.child.wait().await?;
        Ok(())
    }
}

/// What a process prints.
pub(crate) struct Output(Lines<BufReader<ChildStdout>>);

impl Output {
    /// The next value; `None` at the end of the process. A line that was cut off by the end is not a value.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let line = self.0.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }
}

//! One scene: a writer is stopped at work, another one takes over, and the first one comes back.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use mongodb::Database;
use mongolock_examples::paused::Paused;
use mongolock_examples::processes::{self, Processes};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

use crate::account::{self, FIRST_DEPOSIT, SECOND_DEPOSIT, accounts};
use crate::deposit;
use crate::options::Options;
use crate::said::Said;
use crate::summary::Outcome;
use crate::timeline::Timeline;
use crate::ways::Way;

/// Plays it to its end. If it is dropped before, the process ends with it.
pub(crate) async fn play(
    way: Way,
    options: &Options,
    uri: &str,
    database: &Database,
    timeline: &Timeline,
) -> anyhow::Result<Outcome> {
    let accounts = accounts(database);
    account::open(&accounts, way).await?;
    let mut processes = Processes::default();
    let writer = processes.start(command(way, options, uri, database.name())?)?;
    let mut lines = Listener::new(writer)?;

    let Said::Read { token, balance } = lines.next().await? else {
        bail!("writer 1 has written before it was told to");
    };
    timeline.say(&format!(
        "writer 1 (process {}) acquires the lock, token {token}, and reads the balance: {balance}",
        writer.id()
    ))?;
    let stopped = Paused::stop(writer)?;
    timeline.say("writer 1 is stopped; its lease goes on, and nobody renews it")?;

    // Writer 2 is this process. It gets the lock when the lease has run out.
    let working = async |token, balance| {
        timeline.say(&format!(
            "the lease has run out: writer 2 acquires the lock, token {token}, and reads the balance: {balance}"
        ))
    };
    let deposited = deposit(SECOND_DEPOSIT, way, &accounts, working).await;
    deposited.context("writer 2")?;
    timeline.say(&format!(
        "writer 2 has written {} and released the lock",
        balance + SECOND_DEPOSIT
    ))?;

    let orders = writer.stdin.as_mut().context("writer 1 cannot hear")?;
    orders.write_all(b"go on\n").context("writer 1 has ended")?;
    drop(stopped);
    timeline.say(&format!(
        "writer 1 goes on, and sends its write of {}",
        balance + FIRST_DEPOSIT
    ))?;
    let refusal = match lines.next().await? {
        Said::Written => None,
        Said::Refused(message) => Some(message),
        Said::Read { .. } => bail!("writer 1 has read twice"),
    };
    lines.end().await?;
    let outcome = Outcome {
        way,
        balance: account::read(&accounts, way).await?.balance,
        refusal,
    };
    timeline.say(&outcome.to_string())?;
    if let Some(message) = &outcome.refusal {
        timeline.add(message)?;
    }
    if let Some(failure) = processes.failures()?.pop() {
        bail!("writer 1 failed: {failure}");
    }
    Ok(outcome)
}

fn command(way: Way, options: &Options, uri: &str, database: &str) -> anyhow::Result<Command> {
    let mut command = processes::again(uri)?;
    command
        .args(["--writer", &way.to_string(), "--database", database])
        .args(["--expiry", &format!("{}ms", options.expiry.as_millis())])
        .stdout(Stdio::piped())
        // What somebody types on the terminal (Ctrl-Z and `fg`) must not wake it up before its time.
        .process_group(0);
    Ok(command)
}

/// What writer 1 says, without a thread that waits for it.
struct Listener(Lines<BufReader<pipe::Receiver>>);

impl Listener {
    fn new(writer: &mut Child) -> anyhow::Result<Self> {
        let output = writer.stdout.take().context("writer 1 cannot be heard")?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output)).context("cannot hear writer 1")?;
        Ok(Self(BufReader::new(output).lines()))
    }

    async fn next(&mut self) -> anyhow::Result<Said> {
        let line = self.0.next_line().await.context("cannot hear writer 1")?;
        line.context("writer 1 has ended too early")?.parse()
    }

    /// Waits until it has ended. To be waited for as a process closes its standard input, and that would tell it that
    /// its parent is gone.
    async fn end(mut self) -> anyhow::Result<()> {
        match self.0.next_line().await.context("cannot hear writer 1")? {
            None => Ok(()),
            Some(more) => bail!("writer 1 said {more:?} after its end"),
        }
    }
}

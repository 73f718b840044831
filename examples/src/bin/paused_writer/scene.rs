//! The scene: writer 1 is stopped at its work, writer 2 gets the lock, and writer 1 continues.

use std::os::unix::process::CommandExt;
use std::time::Instant;

use anyhow::{Context, bail};
use mongodb::bson::doc;
use mongolock_examples::demo::Stage;
use mongolock_examples::duration::show;
use mongolock_examples::print;
use mongolock_examples::workers::Processes;

use crate::outcome::Outcome;
use crate::ways::Way;
use crate::{Account, Event, FIRST_DEPOSIT, OPENING, SECOND_DEPOSIT, accounts, deposit, read};

/// Plays the scene. If this future is dropped, the process of writer 1 ends with it.
pub(crate) async fn play(way: Way, stage: &Stage, timeline: &Timeline) -> anyhow::Result<Outcome> {
    let accounts = accounts(stage.database());
    let account = Account {
        id: way.to_string(),
        balance: OPENING,
    };
    let same = doc! { "_id": &account.id };
    let opened = accounts.replace_one(same, account).upsert(true).await;
    opened.context("cannot open the account")?;

    let mut writer_1 = Processes::start(1..=1, |number| {
        let mut command = stage.worker(number)?;
        // Ctrl-Z and `fg` in the terminal must not resume this process too early.
        command.args(["--way", &way.to_string()]).process_group(0);
        Ok(command)
    })?;
    let Some(Event::Read { token, balance }) = writer_1.next().await? else {
        bail!("writer 1 did not read the balance");
    };
    timeline.print(format!(
        "writer 1 acquires the lock, token {token}, and reads the balance: {balance}"
    ))?;
    let paused = writer_1.pause()?;
    timeline.print("writer 1 is stopped; its lease is not renewed any more")?;

    let work = async |token, balance| {
        timeline.print(format!(
            "the lease has expired: writer 2 acquires the lock, token {token}, and reads the balance: {balance}"
        ))
    };
    let deposited = deposit(SECOND_DEPOSIT, way, &accounts, work).await;
    deposited.context("writer 2")?;
    timeline.print(format!(
        "writer 2 writes {} and releases the lock",
        balance + SECOND_DEPOSIT
    ))?;

    writer_1.go()?;
    drop(paused);
    timeline.print(format!(
        "writer 1 continues, and writes {}",
        balance + FIRST_DEPOSIT
    ))?;
    let rejection = match writer_1.next().await? {
        Some(Event::Written) => None,
        Some(Event::Rejected(reason)) => Some(reason),
        other => bail!("writer 1 did not write: {other:?}"),
    };
    if let Some(failure) = writer_1.failures().await?.pop() {
        bail!("writer 1 failed: {failure}");
    }
    let outcome = Outcome {
        way,
        balance: read(&accounts, way).await?.balance,
        rejection,
    };
    timeline.print(&outcome)?;
    Ok(outcome)
}

/// What happens, with the time since the beginning of the scene. It prints nothing if there are many runs.
#[derive(Debug)]
pub(crate) struct Timeline(Option<Instant>);

impl Timeline {
    pub(crate) fn begin(way: Way, is_shown: bool) -> anyhow::Result<Self> {
        if is_shown {
            print(format!("\n{}: {}", way.title(), way.method()))?;
        }
        Ok(Self(is_shown.then(Instant::now)))
    }

    fn print(&self, what: impl std::fmt::Display) -> anyhow::Result<()> {
        match self.0 {
            Some(begun) => print(format!("{:>9}  {what}", show(begun.elapsed()))),
            None => Ok(()),
        }
    }
}

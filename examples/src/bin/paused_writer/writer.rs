//! Writer 1: a process of its own, which is stopped from outside while it holds the lock.

use std::io;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use mongolock::{LockError, LockProvider};
use mongolock_examples::output::println;
use mongolock_examples::paused::killed_with_parent;
use mongolock_examples::processes::{self, exit_with_parent};
use tokio::sync::oneshot;

use crate::account::{FIRST_DEPOSIT, accounts};
use crate::deposit;
use crate::options::{self, Options};
use crate::said::Said;

/// Makes its deposit, and says what it has read and what has become of it.
pub(crate) async fn run(writer: &options::Writer, options: &Options) -> anyhow::Result<ExitCode> {
    killed_with_parent()?;
    let told = told_to_go_on();
    let database = processes::database(&writer.database).await?;
    let provider = LockProvider::builder(&database)
        .expiry(options.expiry)
        .owner("writer 1")
        .build()?;

    let working = async |token, balance| {
        say(&Said::Read { token, balance })?;
        told.await.context("nobody said to go on")
    };
    let deposited = provider
        .scope(deposit(FIRST_DEPOSIT, writer.way, &accounts(&database), working))
        .await;
    let outcome = match deposited {
        Ok(()) => Said::Written,
        Err(error) => match error.downcast_ref::<LockError>() {
            Some(refusal) if writer.way.refuses_with(refusal) => Said::Refused(refusal.to_string()),
            _ => return Err(error.context("writer 1")),
        },
    };
    say(&outcome)?;
    provider.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

fn say(said: &Said) -> anyhow::Result<()> {
    println(&said.to_string())
}

/// Ready when the parent has sent a line. This process ends when the parent is gone.
fn told_to_go_on() -> oneshot::Receiver<()> {
    let (go_on, told) = oneshot::channel();
    thread::spawn(|| {
        if let Some(Ok(_)) = io::stdin().lines().next() {
            // Nobody listens if the deposit has failed.
            let _ = go_on.send(());
        }
        exit_with_parent();
    });
    told
}

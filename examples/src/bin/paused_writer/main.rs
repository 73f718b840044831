//! A writer is stopped while it holds a lock, another takes the lock over and writes, and the first one comes back: the
//! late write destroys the other's update, unless it is fenced or its commit is guarded.
//!
//! ```text
//! cargo run --bin paused_writer
//! cargo run --bin paused_writer -- --runs 50
//! cargo run --bin paused_writer -- --expiry 3s
//! ```
//!
//! A lock is a lease. A process that is stopped (by a debugger, a full swap, a paused virtual machine) cannot see its
//! lease end, and what it writes when it goes on comes too late. No lock service can prevent that by itself: the data
//! has to refuse the write. The program plays this scene with a real process, which it stops with SIGSTOP between
//! reading a balance and writing it back, once for each way to write:
//!
//! - plain: `replace_one` of the driver,
//! - fenced: `replace_one` of a `FencedCollection`, which carries the fencing token of the lock,
//! - guarded commit: a transaction that is committed with `LockContext::commit`.
//!
//! They stand side by side in `ways.rs`. The program starts a MongoDB (or uses the one of `MONGODB_URI`, in a database
//! of its own). It exits with status 0 if every plain write destroyed the other's update (that is what it shows) and
//! every fenced and guarded one was refused, and with status 1 if not.

mod account;
mod options;
mod parent;
mod said;
mod scene;
mod summary;
mod timeline;
mod ways;
mod writer;

use std::process::ExitCode;

use clap::Parser;
use mongodb::Collection;
use mongolock::{FencingToken, LockContext, distributed_lock};
use mongolock_examples::program;

use crate::account::Account;
use crate::options::Options;
use crate::ways::Way;

/// What both writers do: read the balance, work for a while, and write it back.
///
/// With `on_lost = "continue"` it goes on when the lock is lost, to show what becomes of the late write. The default
/// would drop it at its next await point, which helps unless the pause comes even later, when the write has been sent.
#[distributed_lock(name = "account:<way>", on_lost = "continue")]
async fn deposit(
    amount: i64,
    way: Way,
    accounts: &Collection<Account>,
    work: impl AsyncFnOnce(FencingToken, i64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let lock = LockContext::current().expect("inside the attribute");
    let mut account = account::read(accounts, way).await?;
    work(lock.fencing_token(), account.balance).await?;
    account.balance += amount;
    way.write(accounts, account, lock).await?;
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run(async {
        match &options.writer {
            Some(writer) => writer::run(writer, &options).await,
            None => {
                program::with_database("paused_writer", async |deployment, database| {
                    parent::work(&options, deployment, database).await
                })
                .await
            }
        }
    })
}

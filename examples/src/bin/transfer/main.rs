//! Several processes transfer money between the same accounts, and a holder who comes too late commits nothing.
//!
//! ```text
//! cargo run --bin transfer
//! cargo run --bin transfer -- --processes 8 --transfers 20 --accounts 5
//! cargo run --bin transfer -- --without-guard
//! ```
//!
//! A transfer writes both balances and an entry of the journal in one transaction. Between two accounts no more than a
//! limit may be moved: that is decided by the entries before the transaction, and approved by somebody else, which
//! takes its time. So it happens under a lock, and [`transfer`](transfer::transfer) is the code to copy.
//!
//! One of the processes is stopped (`SIGSTOP`) after it has decided, until its lease has ended and others have moved
//! money between the two accounts. Then it goes on, and `LockContext::commit` refuses its transaction: by its own clock
//! already, and where that has stood still (in a virtual machine that was paused) by the lock's document, which is part
//! of the transaction. `--without-guard` commits as the driver does, and more is moved than the limit allows.
//!
//! The program starts a MongoDB (or uses the one of `MONGODB_URI`, in a database of its own), runs further processes
//! of itself, prints a line for each transfer, and checks the books at the end. It exits with status 1 if they are
//! wrong.

mod approval;
mod bank;
mod line;
mod options;
mod order;
mod parent;
mod summary;
mod transfer;
mod verdict;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use mongolock_examples::program;

use crate::options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    program::run(async {
        match &options.worker {
            Some(worker) => worker::run(worker, &options).await,
            None => {
                program::with_database("transfer", async |deployment, database| {
                    parent::work(&options, deployment, database).await
                })
                .await
            }
        }
    })
}

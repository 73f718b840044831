//! People edit work items, each in a session of their own, and an item is locked for as long as somebody has it open.
//!
//! ```text
//! cargo run --bin edit_document
//! ```
//!
//! This is pessimistic locking: whoever opens an item first has it until they save, close, or go. The lock is an entry
//! in a collection of its own, under a name made from the item's `ObjectId`; the item is not touched by it. Its owner is
//! the session, so the others are told who has the item, since when, and for how long yet at least. A lock ends
//!
//! - when the editor saves or closes,
//! - when the session ends, or is ended from elsewhere because its process has crashed,
//! - by time, when somebody has gone away and left an item open,
//! - or by the hand of an operator.
//!
//! Whoever has lost a lock in one of these ways learns of it when they save: what a successor has saved is not
//! overwritten, and they get both versions to compare. The file `edit_session.rs` has all that is worth copying.
//!
//! The program starts a MongoDB (or uses the one of `MONGODB_URI`, in a database of its own), plays a few scenes with
//! several sessions, one of them in a process that is killed, and checks each. It exits with status 1 if one does not
//! go as expected. To edit by hand, in two terminals for instance, name a database on the server of `MONGODB_URI`:
//!
//! ```text
//! export MONGODB_URI=mongodb://localhost
//! cargo run --bin edit_document -- --database office --editor anna@desk-3
//! cargo run --bin edit_document -- --database office --editor bert@desk-5
//! ```

mod command;
mod edit_session;
#[cfg(test)]
mod edit_session_tests;
mod items;
mod options;
mod other_process;
mod play;
mod scenes;
mod terminal;
mod wording;

use std::process::ExitCode;

use clap::Parser;
use mongolock_examples::program;

use crate::options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    program::run(async {
        match &options.terminal {
            Some(terminal) => terminal::run(terminal).await,
            None => program::with_database("edit_document", scenes::play).await,
        }
    })
}

//! Users edit work items, each in a session of their own, and an item is locked while a session has it open.
//!
//! ```text
//! cargo run --bin edit_document
//! ```
//!
//! This is pessimistic locking: the first session that opens an item has it until it saves, closes the item, or ends. The
//! lock is a document in a collection of its own, under a name that contains the item's `ObjectId`; the item itself is
//! not changed by it. The owner of the lock is the session, so other sessions see which one has the item, since when, and
//! how long its lease is still valid. A lock ends
//!
//! - when the session saves or closes the item,
//! - when the session ends, or is ended from another process because its own has crashed,
//! - after a time, if the item was left open,
//! - when an operator releases it.
//!
//! A session that has lost a lock in one of these ways sees that when it saves: it does not overwrite what a later session
//! has saved, and it gets both versions to compare. The file `edit_session.rs` is the code to copy.
//!
//! The program plays a few scenes with several sessions, one of them in a process that is killed, and checks each. To edit
//! by hand, for example in two terminals, name a database on the server of `MONGODB_URI`:
//!
//! ```text
//! export MONGODB_URI=mongodb://localhost
//! cargo run --bin edit_document -- --database office --editor anna@desk-3
//! cargo run --bin edit_document -- --database office --editor bert@desk-5
//! ```

mod edit_session;
#[cfg(test)]
mod edit_session_tests;
mod items;
mod play;
mod scenes;
mod terminal;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use mongolock_examples::demo::{self, AFTER_HELP};
use mongolock_examples::duration::{parse, parse_expiry};

/// Users edit work items, each in a session of their own. An item is locked while a session has it open, and other
/// sessions see which one that is. The program plays a few scenes and checks each.
///
/// With --database and --editor you edit yourself, on the server of `MONGODB_URI`; try it in two terminals.
#[derive(Debug, Parser)]
#[command(name = "edit_document", after_help = AFTER_HELP)]
struct Options {
    #[command(flatten)]
    terminal: Option<Terminal>,
}

/// A session that reads its commands from standard input. The scenes start one as well.
#[derive(Debug, Args)]
#[group(requires_all = ["database", "editor"], multiple = true)]
struct Terminal {
    /// Edit the items of this database yourself; they are created if necessary
    #[arg(long, value_name = "NAME", required = false)]
    database: String,

    /// Your name for the other sessions, such as `anna@desk-3`
    #[arg(long, value_name = "NAME", required = false)]
    editor: String,

    /// How long a lease lasts without a renewal: your items are free after this time if the program is killed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_expiry)]
    expiry: Duration,

    /// How long an item that you leave open stays locked; it is free at most one expiry later
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse)]
    max_hold: Duration,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match &options.terminal {
        Some(terminal) => demo::run(terminal::run(terminal)),
        None => demo::demonstrate("edit_document", scenes::play),
    }
}

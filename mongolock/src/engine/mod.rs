//! The engine around the core: it takes events, performs the effects of the core, and runs all tasks. One task waits
//! for the next timer (`timer.rs`), one reads the change stream (`stream.rs`), and each command has one
//! (`commands.rs`).

mod after;
mod call;
mod clock;
mod commands;
mod commits;
mod ends;
mod faults;
mod hold;
mod home;
mod lease;
mod queue;
pub(crate) mod repeated;
mod reports;
mod shared;
mod stream;
#[cfg(test)]
mod tests;
mod timer;
mod words;

pub(crate) use call::{Call, Wish};
pub(crate) use commits::OpenCommit;
pub(crate) use hold::Hold;
pub(crate) use home::Home;
pub(crate) use lease::{CancelShield, Lease};
pub(crate) use shared::Engine;
#[cfg(test)]
pub(crate) use shared::HAS_SEED;

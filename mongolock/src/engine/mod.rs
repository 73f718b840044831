//! The engine around the core: it takes events, performs the effects of the core, and runs all tasks. One task waits
//! for the next timer (`timer.rs`), one reads the change stream, and each command has one (`commands.rs`).

mod after;
mod call;
mod clock;
mod commands;
mod ends;
mod faults;
mod held;
mod hold;
mod notices;
mod reports;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod timer;

pub(crate) use call::AcquireCall;
pub(crate) use held::CancelShield;
pub(crate) use hold::Hold;
#[cfg(test)]
pub(crate) use shared::HAS_SEED;
pub(crate) use state::{About, Engine, Lease};

//! The shell around the core: it takes events, performs what the core decides, and is the only place with tasks. One task waits for
//! what is due (`timer.rs`), one reads the change stream (`stream.rs`), and each command has one (`commands.rs`).

mod cell;
mod clock;
mod commands;
mod faults;
mod queue;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod timer;
mod waiting;
mod wake;

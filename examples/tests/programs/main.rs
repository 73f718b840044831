//! The programs, run as their users run them.

mod paused_writer;
mod report;
mod run;

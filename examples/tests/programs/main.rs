//! The programs, run as their users run them.

mod report;
mod run;
mod transfer;

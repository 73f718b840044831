//! The programs, run as their users run them.

mod nightly_job;
mod report;
mod run;

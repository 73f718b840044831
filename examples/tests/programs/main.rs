//! The programs, run as their users run them.

mod edit_document;
mod queue_workers;
mod report;
mod run;

//! The programs, run as their users run them.

mod command_lines;
mod edit_document;
mod nightly_job;
mod paused_writer;
mod queue_workers;
mod report;
mod report_service;
mod run;
mod transfer;

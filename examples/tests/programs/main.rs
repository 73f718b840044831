//! The programs, run as their users run them.

mod nightly_job;
mod queue_workers;
mod report;
mod report_service;
mod run;
mod transfer;

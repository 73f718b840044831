//! The programs, run as their users run them.

mod report;
mod report_service;
mod run;

//! The programs, run as their users run them.

mod command_lines;
mod ends;
mod run;
mod verdicts;

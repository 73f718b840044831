//! The clients of the web services.

#![expect(
    clippy::missing_errors_doc,
    reason = "an error of these helpers ends the program, and its context says what has failed"
)]

pub mod browser;

//! Lines for the reader.

use std::io::{self, Write};

use anyhow::Context;

/// Writes a line to standard output. Unlike the macro, it does not panic when nobody reads on.
///
/// # Errors
/// When nobody does.
pub fn println(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").context("cannot write to standard output")
}

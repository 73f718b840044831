//! `extend`: extends a detached lease.

use mongolock::LockError;
use serde::Serialize;

use crate::cli::{ConnectionArguments, ExtendArguments};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::handle_file::Stored;
use crate::json::{self, rfc3339};
use crate::output::StandardOutput;

/// The line of `--json`: the new end of the lease.
#[derive(Debug, Serialize)]
struct ExtendedLine {
    expires_at: String,
}

pub(crate) async fn extend(
    arguments: ExtendArguments,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let stored = Stored::read(&arguments.handle)?;
    let provider = connection.collections().await?.provider;
    let extended = provider.extend(&stored.handle, arguments.ttl).await;
    let expires_at = rfc3339(extended.map_err(|error| match error {
        LockError::Lost { .. } => Failure::new(stored.no_lease()).code(exit::LOST),
        error => error.into(),
    })?);
    let mut output = StandardOutput::new();
    output.line(if arguments.json {
        json::line(&ExtendedLine { expires_at })
    } else {
        expires_at
    })?;
    output.flush()?;
    Ok(Exit::OK)
}

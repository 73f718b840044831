//! `extend`: extends a detached lease.

use mongolock::LockError;
use serde::Serialize;

use crate::cli::{ConnectionArguments, ExtendArguments};
use crate::exit::{self, Ending};
use crate::failure::Failure;
use crate::handle_file::Stored;
use crate::json::{self, rfc3339};
use crate::output::Output;

/// The line of `--json`.
#[derive(Debug, Serialize)]
struct Line {
    expires_at: String,
}

pub(crate) async fn extend(
    arguments: ExtendArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let stored = Stored::read(&arguments.handle)?;
    let provider = connection.collections().await?.provider;
    let extended = provider.extend(&stored.handle, arguments.ttl).await;
    let expires_at = rfc3339(extended.map_err(|error| match error {
        LockError::Lost { .. } => Failure::new(stored.no_lease()).code(exit::LOST),
        error => error.into(),
    })?);
    let mut output = Output::new();
    output.line(if arguments.json {
        json::line(&Line { expires_at })
    } else {
        expires_at
    })?;
    output.flush()?;
    Ok(Ending::OK)
}

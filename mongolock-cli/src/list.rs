//! `ls`: the locks, one by one, in constant memory.

use mongolock::{LockError, LockFilter, LockInfo, LockState};

use crate::cli::{ConnectionArguments, ListArguments};
use crate::exit::Ending;
use crate::failure::Failure;
use crate::json;
use crate::output::{Output, damaged_row, heading, row};
use crate::text::escaped;

pub(crate) async fn ls(
    arguments: ListArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let place = connection.place().await?;
    let mut locks = place.provider.admin().stream(filter(&arguments));
    let mut output = Output::new();
    let mut is_empty = true;
    while let Some(found) = locks.next().await {
        let Some(line) = line(found, &arguments)? else {
            continue;
        };
        // An error that comes before the first lock needs no heading.
        if is_empty && !arguments.json {
            output.line(heading())?;
        }
        is_empty = false;
        output.line(line)?;
    }
    if is_empty && !arguments.json && output.is_terminal() {
        output.line(nothing(&arguments, &place.name()))?;
    }
    output.flush()?;
    Ok(Ending::OK)
}

fn filter(arguments: &ListArguments) -> LockFilter {
    let mut filter = LockFilter::new();
    if let Some(prefix) = &arguments.prefix {
        filter = filter.prefix(prefix);
    }
    if let Some(owner) = &arguments.owner {
        filter = filter.owner(owner);
    }
    let states = [
        (arguments.held, LockState::Held),
        (arguments.expired, LockState::Expired),
        (arguments.done, LockState::Done),
    ];
    match states.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, state)) => filter.state(state),
        None => filter,
    }
}

/// What a person sees in place of a list without lines: perhaps it is the wrong database.
fn nothing(arguments: &ListArguments, place: &str) -> String {
    let is_chosen = arguments.prefix.is_some()
        || arguments.owner.is_some()
        || arguments.held
        || arguments.waiting
        || arguments.expired
        || arguments.done;
    let locks = if is_chosen { "such locks" } else { "locks" };
    format!("no {locks} in {}", escaped(place))
}

/// The line of a lock or of a damaged document; `None` for a lock that is not asked for.
fn line(found: Result<LockInfo, LockError>, arguments: &ListArguments) -> Result<Option<String>, Failure> {
    match found {
        Ok(info) if arguments.waiting && info.waiters.is_empty() => Ok(None),
        Ok(info) if arguments.json => Ok(Some(json::lock(&info))),
        Ok(info) => Ok(Some(row(&info))),
        Err(error) => damaged(&error, arguments.json)
            .map(Some)
            .ok_or_else(|| error.into()),
    }
}

/// The line of a document that cannot be read; `None` for another error.
fn damaged(error: &LockError, as_json: bool) -> Option<String> {
    match error {
        _ if as_json => json::damaged(error),
        LockError::CorruptDocument { name, problem, .. } => Some(damaged_row(name, problem)),
        _ => None,
    }
}

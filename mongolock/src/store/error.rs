//! Errors that name a lock and its document.

use mongodb::bson::Bson;

use super::mongo::fields::bson;
use crate::error::driver_text::words;
use crate::error::meaning::{Meaning, OwnFailure};
use crate::protocol::{Row, Value};
use crate::{LockError, permit_id};

/// The error of a command that changes the documents of these locks.
pub(super) fn of_change(names: &str, error: LockError) -> LockError {
    let LockError::Mongo(error) = error else {
        return error;
    };
    match Meaning::of(&error) {
        Meaning::WrongType => {
            let said = words(&error);
            let problem = format!("a field has a type that the server cannot calculate with ({said})");
            corrupt(names, problem)
        }
        Meaning::OutOfTime | Meaning::Conflict => OwnFailure::blocked(names, error),
        _ => error.into(),
    }
}

/// The error for a field that is missing or has the wrong type.
pub(super) fn unfit(name: &str, field: &str, found: &Value, wanted: &str) -> LockError {
    let found = bson(found).as_ref().map(Bson::element_type);
    let problem = match found {
        Some(found) => format!("`{field}` is not {wanted}: its type is {found:?}"),
        None => format!("`{field}` is missing"),
    };
    corrupt(name, problem)
}

pub(super) fn corrupt(name: &str, problem: String) -> LockError {
    LockError::CorruptDocument {
        name: permit_id::name(name).to_owned(),
        problem,
    }
}

/// The names of the locks of rows for an error that is the error of one of them, which the server does not name.
pub(super) fn any_of(rows: &[Row]) -> String {
    let others = if rows.len() > 1 { "` or `others" } else { "" };
    format!("{}{others}", rows[0].name)
}

//! Errors that name a lock and its document.

use mongodb::bson::Bson;

use super::mongo::fields::bson;
use crate::error::driver_text::sentence;
use crate::error::failure::Failure;
use crate::error::meaning::Meaning;
use crate::protocol::{Name, Value};
use crate::{LockError, permit_id};

/// The error of a command that changes the documents of these locks.
pub(super) fn of_change(names: &str, error: LockError) -> LockError {
    let LockError::Mongo(error) = error else {
        return error;
    };
    match Meaning::of(&error) {
        Meaning::WrongType => {
            let said = sentence(&error);
            let problem = format!("a field has a type that the server cannot calculate with ({said})");
            corrupt(names, problem)
        }
        Meaning::OutOfTime | Meaning::Conflict => Failure::blocked(names, error).into_error(),
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
        name: permit_id::shown(name).to_owned(),
        problem,
    }
}

/// The names of locks for an error that concerns one of them, if the server does not say which.
pub(super) fn any_of<'a>(names: impl ExactSizeIterator<Item = &'a Name>) -> String {
    const SHOWN: usize = 3;
    let number = names.len();
    let shown: Vec<&str> = names.take(SHOWN).map(|name| &**name).collect();
    let shown = shown.join("` or `");
    match number.saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}` or `{more} others"),
    }
}

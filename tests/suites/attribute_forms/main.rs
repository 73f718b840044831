//! Forms of the attribute that must compile and work, with in-memory locks. The suite `ui` has the forms that must not
//! compile, and `fixture` those that compile in every edition: receivers, and names of the standard library.

// The tests are about signatures, most of which are unusual.
#![allow(clippy::all, clippy::pedantic, unreachable_pub)]

mod arguments;
mod attributes;
mod body;
mod busy_functions;
mod generics;
mod injective;
mod lock_argument;
mod lock_names;
mod macro_rules;
mod names;
mod options;
mod returns;
mod send;

use mongolock::{LockContext, LockError};

/// The name of the lock that the caller runs under.
fn locked() -> Result<String, LockError> {
    let context = LockContext::current().expect("the body runs under the lock");
    Ok(context.name().to_owned())
}

fn send<F: Future + Send>(future: F) -> F {
    future
}

//! Forms of the attribute that must compile without a warning and work, with in-memory locks, in each edition: the packages in
//! `tests/editions` compile this suite as well. The suite `ui` has the forms that must not compile.

// The tests are about signatures, most of which are unusual. What the lints of a module forbid, the expansion must not do.
#![allow(clippy::all, clippy::pedantic, unreachable_pub)]

mod arguments;
mod attributes;
mod bare;
mod body;
mod busy_functions;
mod generics;
mod injective;
mod lock_argument;
mod lock_names;
mod macro_rules;
mod methods;
mod names;
mod options;
mod renamed;
mod returns;
mod send;
mod shadowed;
mod sizes;
mod traits;

use mongolock::{LockContext, LockError, LockProvider};

/// The name of the lock that the caller runs under.
fn locked() -> Result<String, LockError> {
    let context = LockContext::current().expect("the body runs under the lock");
    Ok(context.name().to_owned())
}

fn send<F: std::future::Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn in_modules_without_the_names_of_the_standard_library() -> Result<(), LockError> {
    LockProvider::in_memory().scope(bare::run()).await?;
    shadowed::run().await
}

//! The attribute macro and the derive macro of `mongolock`. Use them through that crate, which re-exports them.
//!
//! Parse (`args`, `function`, `lock_argument`, `template`, `duration`), validate (`shape`, `validate`, `bind`,
//! `busy_function`), expand (`expand`, `outcome`, `mark`); `lock_name` is the derive macro; `error` has every message for
//! users.

mod args;
mod async_trait;
mod bind;
mod busy_function;
#[cfg(test)]
mod corpus;
mod duration;
mod erase;
mod error;
mod expand;
mod format_call;
mod function;
mod identifier;
mod key;
mod lock_argument;
mod lock_name;
mod mark;
mod outcome;
mod shape;
mod similar;
mod string_literal;
mod template;
mod validate;

use proc_macro2::TokenStream;

use crate::args::Args;
use crate::error::Errors;
use crate::function::Function;

#[doc = include_str!("distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    locked(args.into(), item.into()).into()
}

#[doc = include_str!("lock_name.md")]
#[proc_macro_derive(LockName, attributes(lock))]
pub fn lock_name(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    lock_name::derive(item.into()).into()
}

/// Parses, validates and expands. After a mistake the item is returned unchanged, except for its `#[lock]` argument,
/// together with the errors: its callers still compile, so the compiler reports nothing but the mistake.
fn locked(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let function = Function::parse(item.clone(), &mut errors);
    let shape = function
        .as_ref()
        .and_then(|function| shape::of(function, &mut errors));
    let lock = validate::lock(args, function.as_ref(), &mut errors);
    match (function, shape) {
        (Some(function), Some(shape)) if errors.is_empty() => expand::expand(&function, &lock, shape),
        (Some(function), _) => function
            .unlocked(item)
            .into_iter()
            .chain(errors.into_tokens())
            .collect(),
        (None, _) => item.into_iter().chain(errors.into_tokens()).collect(),
    }
}

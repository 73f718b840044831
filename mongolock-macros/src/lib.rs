//! The attribute macro and the derive macro of `mongolock`. Use them through that crate, which re-exports them.
//!
//! Parse (`args`, `function`, `argument_list`, `lock_argument`, `template`, `duration`), validate (`shape`, `validate`,
//! `bind`, `scope`, `busy_function`), expand (`expand`, `outcome`, `mark`); `lock_name` is the derive macro; `error` has
//! every message for users, and `written` quotes their code.

mod args;
mod argument_list;
mod async_trait;
mod bind;
mod busy_function;
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
#[cfg(test)]
mod samples;
mod scope;
mod shape;
mod similar;
mod string_literal;
mod template;
mod validate;
mod written;

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
/// together with the errors: its callers still compile, so the compiler reports nothing but the mistake. While an argument
/// of the function is being typed, only the compiler reports anything.
fn locked(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let runtime = expand::runtime_crate(args.crate_path.as_ref());
    let function = Function::parse(item, &mut errors);
    if let Ok(function) = &function
        && let Some(place) = function.half_typed
    {
        return function.half_typed(place, &runtime);
    }
    let shape = function
        .as_ref()
        .ok()
        .and_then(|function| shape::of(function, &mut errors));
    let lock = validate::lock(args, function.as_ref().ok(), &mut errors);
    let unlocked = match (function, shape) {
        (Ok(function), Some(shape)) if errors.is_empty() => return expand::expand(&function, &lock, shape),
        (Ok(function), _) => function.unlocked(&runtime),
        (Err(item), _) => item,
    };
    unlocked.into_iter().chain(errors.into_tokens()).collect()
}

//! The names of a lock: they are templates or values whose types declare them, one or several.

use std::collections::HashSet;

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Expr, FnArg, Pat};

use crate::args::{Args, ListedName};
use crate::bind::{self, Part};
use crate::error::{Errors, argument, lock_argument};
use crate::function::Function;
use crate::key::Arg;
use crate::lock_argument::LockArgument;
use crate::scope;
use crate::string_literal::StringLiteral;
use crate::written::written;

/// The greatest number of names in a list; it equals the bound that the runtime checks.
const MAX_NAMES: usize = 500;

/// `name` as given.
pub(crate) enum LockNames {
    One(NameSource),
    /// All or nothing.
    Several(Vec<NameSource>),
}

/// Where a lock name comes from.
pub(crate) enum NameSource {
    /// A template, with its parts in their order.
    Template { template: String, parts: Vec<Part> },
    /// A value whose type has derived `LockName`.
    Value(Expr),
}

/// Reads the lock name, or the list of names.
pub(super) fn names(args: &Args, function: Option<&Function>, errors: &mut Errors) -> LockNames {
    let Some(listed) = &args.name_list else {
        return LockNames::One(name(args, function, errors));
    };
    check_distinct(listed, errors);
    if let Some(name) = listed.get(MAX_NAMES) {
        push_at(name, argument::too_many_names(listed.len(), MAX_NAMES), errors);
    }
    let names = listed.iter().map(|name| match name {
        ListedName::Template(literal) => template_name(literal, function, errors),
        ListedName::Value(value) => value_name(value, function, errors),
    });
    LockNames::Several(names.collect())
}

/// Reports a name that occurs twice in a list.
fn check_distinct(listed: &[ListedName], errors: &mut Errors) {
    let text = |name: &ListedName| match name {
        ListedName::Template(literal) => literal.value().to_owned(),
        ListedName::Value(value) => written(value.to_token_stream()),
    };
    let mut known = HashSet::new();
    for name in listed {
        if !known.insert((std::mem::discriminant(name), text(name))) {
            push_at(name, argument::same_template(&text(name)), errors);
        }
    }
}

/// Reports a mistake in an element of a list.
fn push_at(name: &ListedName, message: String, errors: &mut Errors) {
    match name {
        ListedName::Template(literal) => errors.push(literal.span(), message),
        ListedName::Value(value) => errors.push_spanned(value, message),
    }
}

/// Reads the only lock name.
fn name(args: &Args, function: Option<&Function>, errors: &mut Errors) -> NameSource {
    if let Some(value) = &args.name {
        return value_name(value, function, errors);
    }
    let Some((_, literal)) = args.literal(Arg::Name) else {
        if !args.mentions(Arg::Name) {
            errors.push(Span::call_site(), argument::missing_name(&example_name(function)));
        }
        return NameSource::Template {
            template: String::new(),
            parts: Vec::new(),
        };
    };
    template_name(literal, function, errors)
}

/// A name whose type declares it.
fn value_name(value: &Expr, function: Option<&Function>, errors: &mut Errors) -> NameSource {
    check_lock_name(value, function, errors);
    check_lock_argument(value, function, lock_argument::in_name, errors);
    NameSource::Value(value.clone())
}

/// A template; without a function, its placeholders cannot be resolved and only its syntax is checked.
fn template_name(literal: &StringLiteral, function: Option<&Function>, errors: &mut Errors) -> NameSource {
    let parts = if let Some(function) = function {
        bind::bind(literal, function, errors)
    } else {
        bind::pieces(literal, errors);
        Vec::new()
    };
    NameSource::Template {
        template: literal.value().to_owned(),
        parts,
    }
}

/// Reports a lock name that is a single word in lower case but not an argument: a name without its quotes.
fn check_lock_name(value: &Expr, function: Option<&Function>, errors: &mut Errors) {
    if let Expr::Path(path) = value
        && let Some(word) = path.path.get_ident()
        && let Some(function) = function
        && word.unraw().to_string().starts_with(char::is_lowercase)
        && word != "self"
        && !function.bindings().contains(&word)
        && function.lock_argument.as_ref().and_then(LockArgument::name) != Some(word)
    {
        let write = format!("name = \"{}\"", word.unraw());
        errors.push(word.span(), argument::not_a_string(Arg::Name, Some(write), None));
    }
}

/// Reports an expression that names the `#[lock]` argument but is evaluated before the lock is acquired.
pub(super) fn check_lock_argument(
    value: &Expr,
    function: Option<&Function>,
    message: fn(&str) -> String,
    errors: &mut Errors,
) {
    let argument = function.and_then(|function| function.lock_argument.as_ref());
    if let Some(name) = argument.and_then(LockArgument::name)
        && let Some(used) = scope::first_use(value, name)
    {
        errors.push(used.span(), message(&name.to_string()));
    }
}

/// A lock name for this function, which the message about a missing name suggests.
fn example_name(function: Option<&Function>) -> String {
    let Some(function) = function else {
        return "report:<id>".to_owned();
    };
    let plain = function.signature.inputs.iter().find_map(|input| match input {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(binding) => {
                Some(binding.ident.unraw().to_string()).filter(|name| !name.starts_with('_'))
            }
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    plain.map_or_else(
        || function.name(),
        |argument| format!("{}:<{argument}>", function.name()),
    )
}

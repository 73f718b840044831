//! The rules of the arguments: they turn the arguments as written into a lock that can be expanded.

use std::ops::RangeInclusive;

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Expr, FnArg, Pat, Path};

use crate::args::{Args, ListedName};
use crate::bind::{self, Part};
use crate::busy_function::BusyFunction;
use crate::duration::{self, DAY};
use crate::error::{self, Errors, argument, lock_argument};
use crate::function::Function;
use crate::key::{DurationKey, Key};
use crate::lock_argument::LockArgument;
use crate::string_literal::StringLiteral;

/// The shortest accepted `expiry`, in milliseconds; it equals the bound that the runtime checks.
const MIN_EXPIRY: u64 = 100;
/// The longest accepted duration, in milliseconds; it equals the bound that the runtime checks.
const MAX_DURATION: u64 = 7 * DAY;

/// The shortest accepted `once_per`, in milliseconds; it equals the bound that the runtime checks.
const MIN_PERIOD: u64 = 1000;
/// The greatest accepted `permits`; it equals the bound that the runtime checks.
const MAX_PERMITS: u32 = 1000;
/// The longest accepted `once_per`, in milliseconds; it equals the bound that the runtime checks.
const MAX_PERIOD: u64 = 366 * DAY;

/// A lock that can be expanded.
pub(crate) struct Lock {
    pub(crate) names: LockNames,
    /// The durations that were given, in milliseconds; the provider's value applies to an omitted one.
    pub(crate) durations: Vec<(DurationKey, u64)>,
    /// How long a call waits; the provider's timeout applies to an omitted one.
    pub(crate) acquire_timeout: Option<Timeout>,
    /// The number of permits that was given.
    pub(crate) permits: Option<u32>,
    /// Whether `once = true` was given.
    pub(crate) is_once: bool,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_lost: OnLost,
    /// Whether the call waits until the release is confirmed; an omitted choice is the provider's.
    pub(crate) await_release: Option<bool>,
    /// The expression that gives the provider; without it, the global provider is used.
    pub(crate) provider: Option<Expr>,
    /// The path of the runtime crate; `::mongolock` if it is omitted.
    pub(crate) crate_path: Option<Path>,
}

/// `name` as given.
pub(crate) enum LockNames {
    One(LockName),
    /// All or nothing.
    Several(Vec<LockName>),
}

/// Where a lock name comes from.
pub(crate) enum LockName {
    /// A template, with its parts in their order.
    Template { template: String, parts: Vec<Part> },
    /// A value whose type has derived `LockName`.
    Value(Expr),
}

/// `acquire_timeout` as given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// `"none"`: wait without a limit.
    Unlimited,
    /// Wait for this many milliseconds.
    After(u64),
}

/// What a call does while another holder has the lock.
#[derive(Clone)]
pub(crate) enum OnBusy {
    Wait,
    Skip,
    Fail,
    /// A function of the user's makes the return value.
    Call(BusyFunction),
}

/// What happens to the body when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    Cancel,
    Continue,
}

/// Validates the arguments for this function; the result is meaningful only if no error was added.
pub(crate) fn lock(args: Args, function: Option<&Function>, errors: &mut Errors) -> Lock {
    let names = names(&args, function, errors);
    let durations = durations(&args, errors);
    let acquire_timeout = timeout(&args, errors);
    let on_busy = match &args.on_busy {
        Some(path) => OnBusy::Call(BusyFunction::new(path.clone(), function, errors)),
        None => choice(
            &args,
            Key::OnBusy,
            &[OnBusy::Wait, OnBusy::Skip, OnBusy::Fail],
            errors,
        ),
    };
    let on_lost = choice(&args, Key::OnLost, &[OnLost::Cancel, OnLost::Continue], errors);
    let await_release = args
        .literal(Key::Release)
        .map(|_| choice(&args, Key::Release, &[true, false], errors));
    if args.literal(Key::Escape).is_some() {
        choice(&args, Key::Escape, &[()], errors);
    }
    check_timeout(&args, &on_busy, acquire_timeout, errors);
    check_once(&args, errors);
    let permits = permits(&args, errors);
    if let Some(provider) = &args.provider {
        check_lock_argument(provider, function, lock_argument::in_provider, errors);
    }
    let Args {
        once,
        provider,
        crate_path,
        ..
    } = args;
    Lock {
        names,
        durations,
        acquire_timeout,
        permits,
        is_once: once.is_some(),
        on_busy,
        on_lost,
        await_release,
        provider,
        crate_path,
    }
}

/// Reads the lock name, or the list of names.
fn names(args: &Args, function: Option<&Function>, errors: &mut Errors) -> LockNames {
    let Some(listed) = &args.name_list else {
        return LockNames::One(name(args, function, errors));
    };
    check_distinct(listed, errors);
    let is_template = |name: &ListedName| matches!(name, ListedName::Template(_));
    if !listed.is_empty() && !listed.iter().any(is_template) {
        check_escape_of_values(args, errors);
    }
    let names = listed.iter().map(|name| match name {
        ListedName::Template(literal) => template_name(literal, args, function, errors),
        ListedName::Value(value) => value_name(value, function, errors),
    });
    LockNames::Several(names.collect())
}

/// Reports a name that stands in a list twice.
fn check_distinct(listed: &[ListedName], errors: &mut Errors) {
    let written = |name: &ListedName| match name {
        ListedName::Template(literal) => literal.value().to_owned(),
        ListedName::Value(value) => value.to_token_stream().to_string().replace(" :: ", "::"),
    };
    for (index, name) in listed.iter().enumerate() {
        let is_same = |earlier: &ListedName| {
            std::mem::discriminant(earlier) == std::mem::discriminant(name)
                && written(earlier) == written(name)
        };
        if listed[..index].iter().any(is_same) {
            let message = argument::same_template(&written(name));
            match name {
                ListedName::Template(literal) => errors.push(literal.span(), message),
                ListedName::Value(value) => errors.push_spanned(value, message),
            }
        }
    }
}

/// Reads the only lock name.
fn name(args: &Args, function: Option<&Function>, errors: &mut Errors) -> LockName {
    if let Some(value) = &args.name {
        check_escape_of_values(args, errors);
        return value_name(value, function, errors);
    }
    let Some((_, literal)) = args.literal(Key::Name) else {
        if !args.mentions(Key::Name) {
            errors.push(Span::call_site(), argument::missing_name(&example_name(function)));
        }
        return LockName::Template {
            template: String::new(),
            parts: Vec::new(),
        };
    };
    template_name(literal, args, function, errors)
}

/// A name whose type declares it.
fn value_name(value: &Expr, function: Option<&Function>, errors: &mut Errors) -> LockName {
    check_lock_name(value, function, errors);
    check_lock_argument(value, function, lock_argument::in_name, errors);
    LockName::Value(value.clone())
}

/// A template; without a function, its placeholders cannot be resolved and only its syntax is checked.
fn template_name(
    literal: &StringLiteral,
    args: &Args,
    function: Option<&Function>,
    errors: &mut Errors,
) -> LockName {
    let escapes = args.literal(Key::Escape).is_none();
    let parts = if let Some(function) = function {
        bind::bind(literal, escapes, function, errors)
    } else {
        bind::pieces(literal, escapes, errors);
        Vec::new()
    };
    LockName::Template {
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
        errors.push(word.span(), argument::not_a_string(Key::Name, Some(write)));
    }
}

/// Reports `escape` beside values, whose types have chosen how they are rendered.
fn check_escape_of_values(args: &Args, errors: &mut Errors) {
    if let Some((key, _)) = args.literal(Key::Escape) {
        errors.push(key.span(), argument::escape_of_a_value());
    }
}

/// Reports a timeout that has no effect together with `on_busy`.
fn check_timeout(args: &Args, on_busy: &OnBusy, timeout: Option<Timeout>, errors: &mut Errors) {
    if let Some((key, _)) = args.literal(Key::AcquireTimeout) {
        match (on_busy, timeout) {
            (OnBusy::Fail, _) => errors.push(key.span(), error::duration::timeout_with_fail()),
            (OnBusy::Skip | OnBusy::Call(_), Some(Timeout::Unlimited)) => {
                errors.push(key.span(), error::duration::endless_skip());
            }
            _ => {}
        }
    }
}

/// Reports an expression that names the `#[lock]` argument but is evaluated before the lock is acquired.
fn check_lock_argument(
    value: &Expr,
    function: Option<&Function>,
    message: fn(&str) -> String,
    errors: &mut Errors,
) {
    let argument = function.and_then(|function| function.lock_argument.as_ref());
    if let Some(argument) = argument
        && argument.is_named_in(value.to_token_stream())
    {
        let name = argument.name().map(ToString::to_string).unwrap_or_default();
        errors.push_spanned(value, message(&name));
    }
}

/// Reads `permits`, and reports arguments that contradict it.
fn permits(args: &Args, errors: &mut Errors) -> Option<u32> {
    let (key, literal) = args.permits.as_ref()?;
    if args.name_list.is_some() {
        errors.push(key.span(), argument::permits_with_several_names());
    }
    let once_per = args.literal(Key::Duration(DurationKey::OncePer));
    if once_per.is_some() || args.once.is_some() {
        errors.push(key.span(), argument::permits_with_once());
    }
    let permits = literal.base10_parse().ok();
    let permits = permits.filter(|permits| (1..=MAX_PERMITS).contains(permits));
    if permits.is_none() {
        errors.push(
            literal.span(),
            argument::permits_out_of_bounds(&literal.to_string()),
        );
    }
    permits
}

/// Reports arguments that contradict `once` or `once_per`.
fn check_once(args: &Args, errors: &mut Errors) {
    let key = |key| args.literal(Key::Duration(key)).map(|(ident, _)| ident);
    let once_per = key(DurationKey::OncePer);
    if let (Some(once_per), Some(_)) = (once_per, &args.once) {
        errors.push(once_per.span(), argument::once_twice());
    }
    if let Some(min_hold) = key(DurationKey::MinHold)
        && (once_per.is_some() || args.once.is_some())
    {
        errors.push(min_hold.span(), argument::once_with_min_hold());
    }
    if args.name_list.is_some()
        && let Some(once) = args.once.as_ref().or(once_per)
    {
        errors.push(once.span(), argument::once_with_several_names());
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

/// Reads and checks every duration that was given.
fn durations(args: &Args, errors: &mut Errors) -> Vec<(DurationKey, u64)> {
    let mut read = Vec::new();
    for key in Key::ALL {
        if let Key::Duration(duration_key) = key
            && let Some((_, literal)) = args.literal(key)
        {
            let (bounds, shown) = bounds(duration_key);
            read.extend(duration(key, literal, bounds, shown, errors).map(|millis| (duration_key, millis)));
        }
    }
    check_pairs(args, &read, errors);
    read
}

/// The accepted milliseconds of a duration, and the words that state them to users.
fn bounds(key: DurationKey) -> (RangeInclusive<u64>, &'static str) {
    match key {
        DurationKey::Expiry => (MIN_EXPIRY..=MAX_DURATION, error::duration::EXPIRY_BOUNDS),
        // A renewal must come before the end of even the longest lease.
        DurationKey::RenewInterval => (1..=MAX_DURATION - 1, error::duration::RENEW_BOUNDS),
        DurationKey::OncePer => (MIN_PERIOD..=MAX_PERIOD, error::duration::PERIOD_BOUNDS),
        DurationKey::MinHold | DurationKey::MaxHold => (0..=MAX_DURATION, error::duration::HOLD_BOUNDS),
    }
}

/// Reports a renewal interval that is not shorter than the expiry, and a maximum hold that is shorter than the minimum
/// hold, if both were given and could be read.
fn check_pairs(args: &Args, durations: &[(DurationKey, u64)], errors: &mut Errors) {
    use DurationKey::{Expiry, MaxHold, MinHold, RenewInterval};
    let mut check = |shorter, longer, is_valid: fn(&u64, &u64) -> bool, message: fn(&str, &str) -> String| {
        let millis = |wanted| {
            durations
                .iter()
                .find(|(key, _)| *key == wanted)
                .map(|(_, millis)| millis)
        };
        let keys = [shorter, longer].map(Key::Duration);
        if let [Some(short), Some(long)] = [shorter, longer].map(millis)
            && !is_valid(short, long)
            && let [Some((_, short)), Some((_, long))] = keys.map(|key| args.literal(key))
        {
            let later = args.later_literal(keys[0], keys[1]);
            let span = later.map_or_else(Span::call_site, StringLiteral::span);
            errors.push(span, message(short.value(), long.value()));
        }
    };
    check(RenewInterval, Expiry, u64::lt, error::duration::renews_too_late);
    check(MinHold, MaxHold, u64::le, error::duration::lost_within_min_hold);
}

/// Parses a duration and checks its bounds, which `shown` states to users.
fn duration(
    key: Key,
    literal: &StringLiteral,
    bounds: RangeInclusive<u64>,
    shown: &str,
    errors: &mut Errors,
) -> Option<u64> {
    let written = literal.value();
    match duration::parse(written) {
        Ok(millis) if bounds.contains(&millis) => return Some(millis),
        Ok(_) => errors.push(
            literal.span(),
            error::duration::out_of_bounds(key.as_str(), written, shown),
        ),
        Err(mistake) => errors.push(
            literal.span(),
            error::duration::unreadable(key.as_str(), written, &mistake),
        ),
    }
    None
}

/// Reads `acquire_timeout`.
fn timeout(args: &Args, errors: &mut Errors) -> Option<Timeout> {
    let key = Key::AcquireTimeout;
    let (_, literal) = args.literal(key)?;
    if literal.value() == "none" {
        return Some(Timeout::Unlimited);
    }
    duration(
        key,
        literal,
        0..=MAX_DURATION,
        error::duration::TIMEOUT_BOUNDS,
        errors,
    )
    .map(Timeout::After)
}

/// Reads a choice: `values` are in the order of `Key::choices`, and the first is the default.
fn choice<T: Clone>(args: &Args, key: Key, values: &[T], errors: &mut Errors) -> T {
    let known = key.choices();
    let Some((_, literal)) = args.literal(key) else {
        return values[0].clone();
    };
    let position = known.iter().position(|name| *name == literal.value());
    position.map_or_else(
        || {
            errors.push(
                literal.span(),
                argument::unknown_value(key, literal.value(), known),
            );
            values[0].clone()
        },
        |position| values[position].clone(),
    )
}

#[cfg(test)]
mod tests;

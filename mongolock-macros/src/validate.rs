//! The rules of the arguments: they turn the arguments as written into a lock that can be expanded.

use std::ops::RangeInclusive;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Expr, FnArg, Pat, Path};

use crate::args::Args;
use crate::bind::{self, Part};
use crate::duration::{self, DAY};
use crate::error::{self, Errors, argument};
use crate::function::Function;
use crate::key::{DurationKey, Key};
use crate::string_literal::StringLiteral;
use crate::template;

/// The shortest accepted `expiry`, in milliseconds; it equals the bound that the runtime checks.
const MIN_EXPIRY: u64 = 100;
/// The longest accepted duration, in milliseconds; it equals the bound that the runtime checks.
const MAX_DURATION: u64 = 7 * DAY;

/// The shortest accepted `once_per`, in milliseconds; it equals the bound that the runtime checks.
const MIN_PERIOD: u64 = 1000;
/// The longest accepted `once_per`, in milliseconds; it equals the bound that the runtime checks.
const MAX_PERIOD: u64 = 366 * DAY;

/// A lock that can be expanded.
pub(crate) struct Lock {
    /// The parts of the lock name, in their order.
    pub(crate) name: Vec<Part>,
    /// The durations that were given, in milliseconds; the provider's value applies to an omitted one.
    pub(crate) durations: Vec<(DurationKey, u64)>,
    /// How long a call waits; the provider's timeout applies to an omitted one.
    pub(crate) acquire_timeout: Option<Timeout>,
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

/// `acquire_timeout` as given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// `"none"`: wait without a limit.
    Unlimited,
    /// Wait for this many milliseconds.
    After(u64),
}

/// What a call does while another holder has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBusy {
    Wait,
    Skip,
    Fail,
}

/// What happens to the body when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    Cancel,
    Continue,
}

/// Validates the arguments for this function; the result is meaningful only if no error was added.
pub(crate) fn lock(args: Args, function: Option<&Function>, errors: &mut Errors) -> Lock {
    let name = name(&args, function, errors);
    let durations = durations(&args, errors);
    let acquire_timeout = timeout(&args, errors);
    let on_busy = choice(
        &args,
        Key::OnBusy,
        &[OnBusy::Wait, OnBusy::Skip, OnBusy::Fail],
        errors,
    );
    let on_lost = choice(&args, Key::OnLost, &[OnLost::Cancel, OnLost::Continue], errors);
    let await_release = args
        .literal(Key::Release)
        .map(|_| choice(&args, Key::Release, &[true, false], errors));
    check_timeout(&args, on_busy, acquire_timeout, errors);
    check_once(&args, errors);
    let Args {
        once,
        provider,
        crate_path,
        ..
    } = args;
    Lock {
        name,
        durations,
        acquire_timeout,
        is_once: once.is_some(),
        on_busy,
        on_lost,
        await_release,
        provider,
        crate_path,
    }
}

/// Reads the lock name; without a function, its placeholders cannot be resolved and only its syntax is checked.
fn name(args: &Args, function: Option<&Function>, errors: &mut Errors) -> Vec<Part> {
    match (args.literal(Key::Name), function) {
        (Some((_, literal)), Some(function)) => bind::bind(literal, function, errors),
        (Some((_, literal)), None) => {
            for (range, mistake) in template::parse(literal.value()).1 {
                errors.push(literal.span_of(range), mistake);
            }
            Vec::new()
        }
        (None, _) => {
            if !args.mentions(Key::Name) {
                errors.push(Span::call_site(), argument::missing_name(&example_name(function)));
            }
            Vec::new()
        }
    }
}

/// Reports a timeout that has no effect together with `on_busy`.
fn check_timeout(args: &Args, on_busy: OnBusy, timeout: Option<Timeout>, errors: &mut Errors) {
    if let Some((key, _)) = args.literal(Key::AcquireTimeout) {
        match (on_busy, timeout) {
            (OnBusy::Fail, _) => errors.push(key.span(), error::duration::timeout_with_fail()),
            (OnBusy::Skip, Some(Timeout::Unlimited)) => {
                errors.push(key.span(), error::duration::endless_skip());
            }
            _ => {}
        }
    }
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
    check_renewal(args, &read, errors);
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

/// Reports a renewal interval that is not shorter than the expiry, if both were given and could be read.
fn check_renewal(args: &Args, durations: &[(DurationKey, u64)], errors: &mut Errors) {
    let millis = |wanted| {
        let found = durations.iter().find(|(key, _)| *key == wanted);
        found.map(|(_, millis)| *millis)
    };
    let expiry_key = Key::Duration(DurationKey::Expiry);
    let renew_key = Key::Duration(DurationKey::RenewInterval);
    if let (Some(expiry), Some(renew)) = (millis(DurationKey::Expiry), millis(DurationKey::RenewInterval))
        && renew >= expiry
        && let (Some((_, expiry)), Some((_, renew))) = (args.literal(expiry_key), args.literal(renew_key))
    {
        let span = args
            .later_literal(expiry_key, renew_key)
            .map_or_else(Span::call_site, StringLiteral::span);
        errors.push(
            span,
            error::duration::renews_too_late(renew.value(), expiry.value()),
        );
    }
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
fn choice<T: Copy>(args: &Args, key: Key, values: &[T], errors: &mut Errors) -> T {
    let known = key.choices();
    let Some((_, literal)) = args.literal(key) else {
        return values[0];
    };
    let position = known.iter().position(|name| *name == literal.value());
    position.map_or_else(
        || {
            errors.push(
                literal.span(),
                argument::unknown_value(key, literal.value(), known),
            );
            values[0]
        },
        |position| values[position],
    )
}

#[cfg(test)]
mod tests;

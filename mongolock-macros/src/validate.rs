//! The rules: from what was written to what can be expanded.

use std::ops::RangeInclusive;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Expr, FnArg, Pat, Path};

use crate::args::Args;
use crate::bind::{self, Part};
use crate::duration::{self, DAY};
use crate::error::{self, Errors, option};
use crate::item::Function;
use crate::key::{DurationKey, Key};
use crate::text::Text;

const MIN_EXPIRY: u64 = 100;
const MAX: u64 = 7 * DAY;

/// A lock that can be expanded.
pub(crate) struct Lock {
    pub(crate) name: Vec<Part>,
    /// Milliseconds of each duration that was given, but for `acquire_timeout`.
    pub(crate) durations: Vec<(DurationKey, u64)>,
    pub(crate) acquire_timeout: Option<Timeout>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_lost: OnLost,
    pub(crate) provider: Option<Expr>,
    pub(crate) crate_path: Option<Path>,
}

/// `acquire_timeout` as given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    Never,
    After(u64),
}

/// What a call does while somebody else has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBusy {
    Wait,
    Skip,
    Fail,
}

/// What becomes of the body when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    Cancel,
    Continue,
}

/// Judges the arguments for this function; the result is to be used only if no error was added.
pub(crate) fn lock(args: Args, function: Option<&Function>, errors: &mut Errors) -> Lock {
    let name = match (args.text(Key::Name), function) {
        (Some((_, text)), Some(function)) => bind::bind(text, function, errors),
        (Some((_, text)), None) => {
            for (range, mistake) in crate::name::parse(text.value()).1 {
                errors.push(text.at(range), mistake);
            }
            Vec::new()
        }
        (None, _) => {
            if !args.gives(Key::Name) {
                errors.push(Span::call_site(), option::missing_name(&example(function)));
            }
            Vec::new()
        }
    };
    let durations = durations(&args, errors);
    let acquire_timeout = timeout(&args, errors);
    let on_busy = choice(
        &args,
        Key::OnBusy,
        &[OnBusy::Wait, OnBusy::Skip, OnBusy::Fail],
        errors,
    );
    let on_lost = choice(&args, Key::OnLost, &[OnLost::Cancel, OnLost::Continue], errors);
    if let Some((key, _)) = args.text(Key::AcquireTimeout) {
        match (on_busy, acquire_timeout) {
            (OnBusy::Fail, _) => errors.push(key.span(), error::duration::timeout_with_fail()),
            (OnBusy::Skip, Some(Timeout::Never)) => errors.push(key.span(), error::duration::endless_skip()),
            _ => {}
        }
    }
    let Args {
        provider, crate_path, ..
    } = args;
    Lock {
        name,
        durations,
        acquire_timeout,
        on_busy,
        on_lost,
        provider,
        crate_path,
    }
}

/// A name that would suit this function, for the message about a missing one.
fn example(function: Option<&Function>) -> String {
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
            && let Some((_, text)) = args.text(key)
        {
            let (bounds, shown) = bounds(duration_key);
            read.extend(duration(key, text, bounds, shown, errors).map(|millis| (duration_key, millis)));
        }
    }
    check_renewal(args, &read, errors);
    read
}

/// The accepted milliseconds of a duration, and the words that state them to users.
fn bounds(key: DurationKey) -> (RangeInclusive<u64>, &'static str) {
    match key {
        DurationKey::Expiry => (MIN_EXPIRY..=MAX, error::duration::EXPIRY_BOUNDS),
        // A renewal must come before the end of even the longest lease.
        DurationKey::RenewInterval => (1..=MAX - 1, error::duration::RENEW_BOUNDS),
        DurationKey::MinHold | DurationKey::MaxHold => (0..=MAX, error::duration::OTHER_BOUNDS),
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
        && let (Some((_, expiry)), Some((_, renew))) = (args.text(expiry_key), args.text(renew_key))
    {
        let span = args
            .later(expiry_key, renew_key)
            .map_or_else(Span::call_site, Text::span);
        errors.push(
            span,
            error::duration::renews_too_late(renew.value(), expiry.value()),
        );
    }
}

fn duration(
    key: Key,
    text: &Text,
    bounds: RangeInclusive<u64>,
    shown: &str,
    errors: &mut Errors,
) -> Option<u64> {
    let written = text.value();
    match duration::parse(written) {
        Ok(millis) if bounds.contains(&millis) => return Some(millis),
        Ok(_) => errors.push(
            text.span(),
            error::duration::out_of_bounds(key.as_str(), written, shown),
        ),
        Err(mistake) => errors.push(
            text.span(),
            error::duration::unreadable_duration(key.as_str(), written, &mistake),
        ),
    }
    None
}

fn timeout(args: &Args, errors: &mut Errors) -> Option<Timeout> {
    let key = Key::AcquireTimeout;
    let (_, text) = args.text(key)?;
    if text.value() == "none" {
        return Some(Timeout::Never);
    }
    duration(key, text, 0..=MAX, error::duration::TIMEOUT_BOUNDS, errors).map(Timeout::After)
}

/// The chosen one of `values`, which stand in the order of their names; the first is the default.
fn choice<T: Copy>(args: &Args, key: Key, values: &[T], errors: &mut Errors) -> T {
    let known = key.choices();
    let Some((_, text)) = args.text(key) else {
        return values[0];
    };
    let position = known.iter().position(|name| *name == text.value());
    position.map_or_else(
        || {
            errors.push(text.span(), option::unknown_value(key, text.value(), known));
            values[0]
        },
        |position| values[position],
    )
}

#[cfg(test)]
mod tests;

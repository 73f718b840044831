//! The rules: from what was written to what can be expanded.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Expr, FnArg, Pat, Path};

use crate::args::Args;
use crate::bind::{self, Part};
use crate::duration::{self, DAY};
use crate::error::{self, Errors, option};
use crate::item::Function;
use crate::key::Key;
use crate::text::Text;

const MIN_EXPIRY: u64 = 100;
const MAX: u64 = 7 * DAY;

/// A lock that can be expanded.
pub(crate) struct Lock {
    pub(crate) name: Vec<Part>,
    /// Milliseconds of each duration that was given, but for `acquire_timeout`.
    pub(crate) durations: Vec<(Key, u64)>,
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

pub(crate) fn known_values(key: Key) -> &'static [&'static str] {
    match key {
        Key::OnBusy => &["wait", "skip", "fail"],
        Key::OnLost => &["cancel", "continue"],
        _ => &[],
    }
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
            (OnBusy::Fail, _) => errors.push(key.span(), error::timeout_with_fail()),
            (OnBusy::Skip, Some(Timeout::Never)) => errors.push(key.span(), error::endless_skip()),
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

fn durations(args: &Args, errors: &mut Errors) -> Vec<(Key, u64)> {
    let mut read = Vec::new();
    for (key, least, bounds) in [
        (Key::Expiry, MIN_EXPIRY, error::EXPIRY_BOUNDS),
        (Key::RenewInterval, 1, error::RENEW_BOUNDS),
        (Key::MinHold, 0, error::OTHER_BOUNDS),
        (Key::MaxHold, 0, error::OTHER_BOUNDS),
    ] {
        if let Some((_, text)) = args.text(key) {
            // A renewal must come before the end of even the longest lease.
            let most = if key == Key::RenewInterval { MAX - 1 } else { MAX };
            read.extend(duration(key, text, least..=most, bounds, errors).map(|millis| (key, millis)));
        }
    }
    if let [(Key::Expiry, expiry), (Key::RenewInterval, renew), ..] = read.as_slice()
        && renew >= expiry
        && let (Some((_, expiry)), Some((_, renew))) = (args.text(Key::Expiry), args.text(Key::RenewInterval))
    {
        let span = args
            .later(Key::Expiry, Key::RenewInterval)
            .map_or_else(Span::call_site, Text::span);
        errors.push(span, error::renews_too_late(renew.value(), expiry.value()));
    }
    read
}

fn duration(
    key: Key,
    text: &Text,
    bounds: std::ops::RangeInclusive<u64>,
    shown: &str,
    errors: &mut Errors,
) -> Option<u64> {
    let written = text.value();
    match duration::parse(written) {
        Ok(millis) if bounds.contains(&millis) => return Some(millis),
        Ok(_) => errors.push(text.span(), error::out_of_bounds(key.as_str(), written, shown)),
        Err(mistake) => errors.push(
            text.span(),
            error::unreadable_duration(key.as_str(), written, &mistake),
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
    duration(key, text, 0..=MAX, error::TIMEOUT_BOUNDS, errors).map(Timeout::After)
}

/// The chosen one of `values`, which stand in the order of their names; the first is the default.
fn choice<T: Copy>(args: &Args, key: Key, values: &[T], errors: &mut Errors) -> T {
    let known = known_values(key);
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

//! The rules of the arguments: they turn the arguments as written into a lock that can be expanded.

mod names;

use std::ops::RangeInclusive;

use proc_macro2::Span;
use syn::{Expr, Path};

pub(crate) use self::names::{LockNames, NameSource};
use crate::args::Args;
use crate::busy_function::BusyFunction;
use crate::duration::{self, DAY};
use crate::error::{self, Errors, argument, lock_argument};
use crate::function::Function;
use crate::key::{Arg, DurationKey};
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
pub(crate) struct CheckedLock {
    pub(crate) names: LockNames,
    /// The durations that were given, in milliseconds; the provider's value applies to an omitted one.
    pub(crate) durations: Vec<(DurationKey, u64)>,
    /// How long a call waits; the provider's timeout applies to an omitted one.
    pub(crate) acquire_timeout: Option<Timeout>,
    /// The number of permits that was given.
    pub(crate) permits: Option<u32>,
    /// Whether `once = true` was given.
    pub(crate) is_once: bool,
    /// The scheduled time that `once_at` gives.
    pub(crate) tick: Option<Expr>,
    pub(crate) on_busy: BusyPolicy,
    pub(crate) continues_when_lost: bool,
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
#[derive(Clone)]
pub(crate) enum BusyPolicy {
    Wait,
    Skip,
    Fail,
    /// A function of the user's makes the return value.
    Call(BusyFunction),
}

/// Validates the arguments for this function; the result is meaningful only if no error was added.
pub(crate) fn lock(args: Args, function: Option<&Function>, errors: &mut Errors) -> CheckedLock {
    let names = names::names(&args, function, errors);
    let durations = durations(&args, errors);
    let acquire_timeout = timeout(&args, errors);
    let on_busy = match &args.on_busy {
        Some(path) => BusyPolicy::Call(BusyFunction::new(path.clone(), function, errors)),
        None => choice(
            &args,
            Arg::OnBusy,
            &[BusyPolicy::Wait, BusyPolicy::Skip, BusyPolicy::Fail],
            errors,
        ),
    };
    let continues_when_lost = choice(&args, Arg::OnLost, &[false, true], errors);
    let await_release = args
        .literal(Arg::Release)
        .map(|_| choice(&args, Arg::Release, &[true, false], errors));
    check_timeout(&args, &on_busy, acquire_timeout, errors);
    check_once(&args, errors);
    let permits = permits(&args, errors);
    if let Some(provider) = &args.provider {
        names::check_lock_argument(provider, function, lock_argument::in_provider, errors);
    }
    if let Some((_, tick)) = &args.once_at {
        names::check_lock_argument(tick, function, lock_argument::in_tick, errors);
    }
    CheckedLock {
        names,
        durations,
        acquire_timeout,
        permits,
        is_once: args.once.is_some(),
        tick: args.once_at.map(|(_, tick)| tick),
        on_busy,
        continues_when_lost,
        await_release,
        provider: args.provider,
        crate_path: args.crate_path,
    }
}

/// Reports a timeout that has no effect together with `on_busy`.
fn check_timeout(args: &Args, on_busy: &BusyPolicy, timeout: Option<Timeout>, errors: &mut Errors) {
    if let Some((key, _)) = args.literal(Arg::AcquireTimeout) {
        match (on_busy, timeout) {
            (BusyPolicy::Fail, _) => errors.push(key.span(), error::duration::timeout_with_fail()),
            (BusyPolicy::Skip | BusyPolicy::Call(_), Some(Timeout::Unlimited)) => {
                errors.push(key.span(), error::duration::endless_skip());
            }
            _ => {}
        }
    }
}

/// Reads `permits`, and reports arguments that contradict it.
fn permits(args: &Args, errors: &mut Errors) -> Option<u32> {
    let (key, literal) = args.permits.as_ref()?;
    if args.name_list.is_some() {
        errors.push(key.span(), argument::permits_with_several_names());
    }
    if args.once_keys().next().is_some() {
        errors.push(key.span(), argument::permits_with_once());
    }
    let permits = literal.base10_parse().ok();
    let permits = permits.filter(|permits| (1..=MAX_PERMITS).contains(permits));
    if permits.is_none() {
        let message = argument::permits_out_of_bounds(&literal.to_string());
        errors.push(literal.span(), message);
    }
    permits
}

/// Reports arguments that contradict `once`, `once_at` or `once_per`.
fn check_once(args: &Args, errors: &mut Errors) {
    let Some(first) = args.once_keys().next() else {
        return;
    };
    if let Some(other) = args.once_keys().nth(1) {
        errors.push(other.span(), argument::once_twice());
    }
    if let Some((min_hold, _)) = args.literal(Arg::Duration(DurationKey::MinHold)) {
        errors.push(min_hold.span(), argument::once_with_min_hold());
    }
    if args.name_list.is_some() {
        errors.push(first.span(), argument::once_with_several_names());
    }
}

/// Reads and checks every duration that was given.
fn durations(args: &Args, errors: &mut Errors) -> Vec<(DurationKey, u64)> {
    let mut read = Vec::new();
    for key in Arg::ALL {
        if let Arg::Duration(duration_key) = key
            && let Some((_, literal)) = args.literal(key)
        {
            let (bounds, shown) = bounds(duration_key);
            read.extend(duration(key, literal, bounds, shown, errors).map(|millis| (duration_key, millis)));
        }
    }
    check_holds(args, &read, errors);
    read
}

/// The accepted milliseconds of a duration, and the words that state them to users.
fn bounds(key: DurationKey) -> (RangeInclusive<u64>, &'static str) {
    match key {
        DurationKey::Expiry => (MIN_EXPIRY..=MAX_DURATION, error::duration::EXPIRY_BOUNDS),
        DurationKey::OncePer => (MIN_PERIOD..=MAX_PERIOD, error::duration::PERIOD_BOUNDS),
        DurationKey::MinHold | DurationKey::MaxHold => (0..=MAX_DURATION, error::duration::HOLD_BOUNDS),
    }
}

/// Reports a maximum hold that is shorter than the minimum hold, if both were given and could be read.
fn check_holds(args: &Args, durations: &[(DurationKey, u64)], errors: &mut Errors) {
    let keys = [DurationKey::MinHold, DurationKey::MaxHold];
    let millis = |wanted| durations.iter().find(|(key, _)| *key == wanted);
    if let [Some((_, min)), Some((_, max))] = keys.map(millis)
        && max < min
        && let [Some((_, min)), Some((_, max))] = keys.map(|key| args.literal(Arg::Duration(key)))
    {
        let [min_key, max_key] = keys.map(Arg::Duration);
        let later = args.later_literal(min_key, max_key);
        let span = later.map_or_else(Span::call_site, StringLiteral::span);
        let message = error::duration::lost_within_min_hold(min.value(), max.value());
        errors.push(span, message);
    }
}

/// Parses a duration and checks its bounds, which `shown` states to users.
fn duration(
    key: Arg,
    literal: &StringLiteral,
    bounds: RangeInclusive<u64>,
    shown: &str,
    errors: &mut Errors,
) -> Option<u64> {
    let (written, option) = (literal.value(), key.as_str());
    let mistake = match duration::parse(written) {
        Ok(millis) if bounds.contains(&millis) => return Some(millis),
        Ok(_) => error::duration::out_of_bounds(option, written, shown),
        Err(mistake) => error::duration::unreadable(option, written, &mistake),
    };
    errors.push(literal.span(), mistake);
    None
}

/// Reads `acquire_timeout`.
fn timeout(args: &Args, errors: &mut Errors) -> Option<Timeout> {
    let key = Arg::AcquireTimeout;
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

/// Reads a choice: `values` are in the order of `Arg::choices`, and the first is the default.
fn choice<T: Clone>(args: &Args, key: Arg, values: &[T], errors: &mut Errors) -> T {
    let Some((_, literal)) = args.literal(key) else {
        return values[0].clone();
    };
    let (known, value) = (key.choices(), literal.value());
    let position = known.iter().position(|name| *name == value);
    if position.is_none() {
        errors.push(literal.span(), argument::unknown_value(key, value, known));
    }
    values[position.unwrap_or(0)].clone()
}

#[cfg(test)]
mod tests;

//! Messages about the arguments of the attribute.

use proc_macro2::TokenStream;
use syn::ExprPath;

use crate::key::Arg;
use crate::similar::nearest;
use crate::written::written;

/// The words as a sentence lists them: `a`, `b` or `c`, each in backticks.
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>, last: &str) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [first @ .., end] if !first.is_empty() => format!("{} {last} {end}", first.join(", ")),
        _ => words.join(", "),
    }
}

/// The names of all arguments.
fn all_names() -> String {
    list(Arg::ALL.map(Arg::as_str), "or")
}

pub(crate) fn unknown(written: &str) -> String {
    if let Some((key, example)) = Arg::synonym(written) {
        return format!(
            "unknown argument `{written}`: it is called `{}` here: write `{example}`",
            key.as_str()
        );
    }
    match Arg::nearest(written) {
        Some(key) => format!("unknown argument `{written}`: did you mean `{}`?", key.as_str()),
        None => format!("unknown argument `{written}`: expected {}", all_names()),
    }
}

/// The message about a value without its key, such as a bare `skip`.
pub(crate) fn value_alone(key: Arg, written: &str) -> String {
    format!(
        "`{written}` is a value and not an argument: write `{} = \"{written}\"`",
        key.as_str()
    )
}

pub(crate) fn name_alone(value: TokenStream) -> String {
    format!(
        "this value has no argument name: write `name = {}`",
        written(value)
    )
}

pub(crate) fn not_an_argument() -> String {
    format!(
        "expected an argument such as `name = \"…\"`: write one of {}",
        all_names()
    )
}

pub(crate) fn repeated(key: Arg) -> String {
    format!("`{0}` is given twice: keep one `{0}`", key.as_str())
}

pub(crate) fn no_value(key: Arg) -> String {
    format!("`{}` needs a value: write `{}`", key.as_str(), key.example())
}

/// The message about `name: value` and `name(value)`.
pub(crate) fn no_equals(key: Arg, write: &str) -> String {
    format!("`{}` takes its value after `=`: write `{write}`", key.as_str())
}

/// The message about `name = (value)`.
pub(crate) fn parenthesised(key: Arg, write: &str) -> String {
    format!(
        "`{}` takes its value without parentheses: write `{write}`",
        key.as_str()
    )
}

pub(crate) fn attribute() -> &'static str {
    "an argument cannot have an attribute: write the whole lock twice, as `#[cfg_attr(condition, distributed_lock(..))]`"
}

pub(crate) fn no_comma() -> &'static str {
    "expected `,` between two arguments"
}

/// The message about a value that is not a string literal, perhaps the path of a constant.
pub(crate) fn not_a_string(key: Arg, write: Option<String>, constant: Option<&str>) -> String {
    let example = key.example();
    let reason = match constant {
        Some(constant) => format!(", because an attribute cannot read the constant `{constant}`"),
        None => String::new(),
    };
    match (key, write) {
        (Arg::OnBusy, Some(write)) if !write.ends_with('"') => {
            format!("`on_busy` takes the path of a function: write `{write}`")
        }
        (Arg::OnBusy, None) => format!(
            "`on_busy` must be a string literal or the path of a function: write `{example}` or `on_busy = my_function`"
        ),
        (Arg::Name, None) => format!(
            "`name` must be a string literal, or a path or struct expression of a type with `#[derive(LockName)]`: \
             write `{example}`"
        ),
        (_, None) => format!(
            "`{}` must be a string literal{reason}: write `{example}`",
            key.as_str()
        ),
        (_, Some(write)) => format!("`{}` must be a string literal: write `{write}`", key.as_str()),
    }
}

pub(crate) fn closure() -> &'static str {
    "`on_busy` takes the path of a function and not a closure: write `on_busy = my_function`, and make the closure the \
     function `fn my_function(.., busy: &Busy)`, which gets a reference to each argument"
}

pub(crate) fn not_a_name_in_list() -> &'static str {
    "each name of the list must be a string literal or a `LockName`: write `name = [\"account:<from>\", \"account:<to>\"]`"
}

pub(crate) fn empty_list() -> &'static str {
    "the list of names is empty: write what the locks protect, such as `name = [\"account:<from>\", \"account:<to>\"]`"
}

/// The message about a list with more names than one call can lock.
pub(crate) fn too_many_names(count: usize, most: usize) -> String {
    format!(
        "the list has {count} names, and one call locks at most {most} together: write one name for a group of them, or \
         divide the work among several calls"
    )
}

pub(crate) fn same_template(written: &str) -> String {
    format!("the lock name `{written}` is given twice: a lock counts once, so remove one of the two")
}

pub(crate) fn suffixed(key: Arg, suffix: &str) -> String {
    format!(
        "`{}` must be a plain string literal: remove the suffix `{suffix}`",
        key.as_str()
    )
}

pub(crate) fn not_a_path(write: Option<String>) -> String {
    let write = write.unwrap_or_else(|| "crate = my_crate::mongolock".to_owned());
    format!("`crate` must be a path: write `{write}`")
}

pub(crate) fn not_true() -> &'static str {
    "`once` can only be `true`: write `once = true`, or remove it"
}

pub(crate) fn once_twice() -> &'static str {
    "`once`, `once_at` and `once_per` exclude each other: keep `once_at` for the ticks of a schedule, `once_per` for a period, and \
     `once` for a name that says it all"
}

/// The message about a value of `permits` that is not a number, but perhaps has one in quotes or is a constant.
pub(crate) fn not_a_number(number: Option<&str>, constant: Option<&str>) -> String {
    let write = format!("write `permits = {}`", number.unwrap_or("5"));
    match constant {
        Some(constant) => format!(
            "`permits` must be a number, because an attribute cannot read the constant `{constant}`: {write}, or acquire \
             a permit of `provider.semaphore(name, {constant})` in the function"
        ),
        None => format!("`permits` must be a number: {write}"),
    }
}

pub(crate) fn permits_out_of_bounds(written: &str) -> String {
    format!("`permits = {written}` is out of bounds: write a number from 1 to 1000")
}

pub(crate) fn permits_with_several_names() -> &'static str {
    "`permits` needs one lock name: give one `name`, or remove `permits`"
}

pub(crate) fn permits_with_once() -> &'static str {
    "`permits` contradicts `once`, `once_at` and `once_per`, which let one caller work at a time: remove one of the two"
}

pub(crate) fn once_with_several_names() -> &'static str {
    "work that may succeed only once has one lock name: give one `name`, or remove `once`, `once_at` and `once_per`"
}

pub(crate) fn once_with_min_hold() -> &'static str {
    "`min_hold` has no effect with `once`, `once_at` or `once_per`, whose mark keeps the lock taken: remove one of the two"
}

pub(crate) fn not_an_expression(key: Arg) -> String {
    let gives = if key == Arg::Provider {
        "a `LockProvider`"
    } else {
        "the scheduled time"
    };
    let (name, example) = (key.as_str(), key.example());
    format!("`{name}` must be an expression that gives {gives}: write `{example}`")
}

pub(crate) fn unknown_value(key: Arg, written: &str, known: &[&str]) -> String {
    let meant = if let Some(near) = nearest(written, known.iter().copied()) {
        format!("did you mean `{near}`?")
    } else if key == Arg::OnBusy && syn::parse_str::<ExprPath>(written).is_ok() {
        let known = list(known.iter().copied(), "or");
        format!("write {known}, or `on_busy = {written}` without quotes for a function")
    } else {
        format!("write {}", list(known.iter().copied(), "or"))
    };
    format!("`{}` cannot be `{written}`: {meant}", key.as_str())
}

pub(crate) fn missing_name(example: &str) -> String {
    format!("`name` is missing: write `#[distributed_lock(name = \"{example}\")]`")
}

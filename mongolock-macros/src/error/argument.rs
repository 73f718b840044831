//! Messages about the arguments of the attribute.

use crate::key::Key;
use crate::similar::nearest;

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
    list(Key::ALL.map(Key::as_str), "or")
}

pub(crate) fn unknown(written: &str) -> String {
    if let Some(key) = Key::synonym(written) {
        return format!(
            "unknown argument `{written}`: it is called `{}` here: write `{}`",
            key.as_str(),
            key.example()
        );
    }
    match Key::nearest(written) {
        Some(key) => format!("unknown argument `{written}`: did you mean `{}`?", key.as_str()),
        None => format!("unknown argument `{written}`: expected {}", all_names()),
    }
}

/// The message about a value without its key, such as a bare `skip`.
pub(crate) fn value_alone(key: Key, written: &str) -> String {
    format!(
        "`{written}` is a value and not an argument: write `{} = \"{written}\"`",
        key.as_str()
    )
}

pub(crate) fn literal_alone(written: &str) -> String {
    format!("this value has no argument name: write `name = {written}`")
}

pub(crate) fn not_an_argument() -> String {
    format!(
        "expected an argument such as `name = \"…\"`: write one of {}",
        all_names()
    )
}

pub(crate) fn repeated(key: Key) -> String {
    format!("`{0}` is given twice: keep one `{0}`", key.as_str())
}

pub(crate) fn no_value(key: Key) -> String {
    format!("`{}` needs a value: write `{}`", key.as_str(), key.example())
}

/// The message about `name: value`.
pub(crate) fn colon(key: Key, value: &str) -> String {
    let key = key.as_str();
    format!("`{key}` takes its value after `=`: write `{key} = {value}`")
}

pub(crate) fn attribute() -> &'static str {
    "an argument cannot have an attribute: write the whole lock twice, as `#[cfg_attr(condition, distributed_lock(..))]`"
}

pub(crate) fn no_comma() -> &'static str {
    "expected `,` between two arguments"
}

pub(crate) fn not_a_string(key: Key, write: Option<String>) -> String {
    if key == Key::OnBusy && write.is_none() {
        return format!(
            "`on_busy` must be a string literal or the path of a function: write `{}` or `on_busy = my_function`",
            key.example()
        );
    }
    if key == Key::Name && write.is_none() {
        return format!(
            "`name` must be a string literal, or a path or struct expression of a type with `#[derive(LockName)]`: \
             write `{}`",
            key.example()
        );
    }
    let write = write.unwrap_or_else(|| key.example().to_owned());
    format!("`{}` must be a string literal: write `{write}`", key.as_str())
}

pub(crate) fn not_a_name_in_list() -> &'static str {
    "each name of the list must be a string literal or a `LockName`: write `name = [\"account:<from>\", \"account:<to>\"]`"
}

pub(crate) fn empty_list() -> &'static str {
    "the list of names is empty: write what the locks protect, such as `name = [\"account:<from>\", \"account:<to>\"]`"
}

pub(crate) fn same_template(written: &str) -> String {
    format!("the lock name `{written}` is given twice: a lock counts once, so remove one of the two")
}

pub(crate) fn suffixed(key: Key, suffix: &str) -> String {
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
    "`once` and `once_per` exclude each other: keep `once` for a name with the scheduled time, and `once_per` for a period"
}

pub(crate) fn not_a_number() -> &'static str {
    "`permits` must be a number: write `permits = 5`"
}

pub(crate) fn permits_out_of_bounds(written: &str) -> String {
    format!("`permits = {written}` is out of bounds: write a number from 1 to 1000")
}

pub(crate) fn permits_with_several_names() -> &'static str {
    "`permits` needs one lock name: give one `name`, or remove `permits`"
}

pub(crate) fn permits_with_once() -> &'static str {
    "`permits` contradicts `once` and `once_per`, which let one caller work at a time: remove one of the two"
}

pub(crate) fn once_with_several_names() -> &'static str {
    "work that may succeed only once has one lock name: give one `name`, or remove `once` and `once_per`"
}

pub(crate) fn once_with_min_hold() -> &'static str {
    "`min_hold` has no effect with `once` or `once_per`, whose mark keeps the lock taken: remove one of the two"
}

pub(crate) fn not_an_expression() -> &'static str {
    "`provider` must be an expression that gives a `LockProvider`: write `provider = self.provider`"
}

pub(crate) fn unknown_value(key: Key, written: &str, known: &[&str]) -> String {
    let meant = nearest(written, known.iter().copied()).map_or_else(
        || format!("write {}", list(known.iter().copied(), "or")),
        |near| format!("did you mean `{near}`?"),
    );
    format!("`{}` cannot be `{written}`: {meant}", key.as_str())
}

pub(crate) fn escape_of_a_value() -> &'static str {
    "`escape` applies to a string literal only, because `#[derive(LockName)]` always escapes: remove it"
}

pub(crate) fn missing_name(example: &str) -> String {
    format!("`name` is missing: write `#[distributed_lock(name = \"{example}\")]`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_like_sentences() {
        assert_eq!(list(["a"], "or"), "`a`");
        assert_eq!(list(["a", "b"], "or"), "`a` or `b`");
        assert_eq!(list(["a", "b", "c"], "and"), "`a`, `b` and `c`");
        assert_eq!(list([], "or"), "");
    }
}

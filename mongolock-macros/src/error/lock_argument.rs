//! Messages about the argument `#[lock]`.

pub(crate) fn second() -> &'static str {
    "a function has one lock, so it can have only one `#[lock]` argument: remove this one"
}

pub(crate) fn not_a_name() -> &'static str {
    "the `#[lock]` argument must be a plain name or `_`: write `#[lock] lock: LockContext`"
}

pub(crate) fn other_type(written: &str) -> String {
    format!("the `#[lock]` argument is a `LockContext`, not `{written}`: write `#[lock] lock: LockContext`")
}

pub(crate) fn receiver() -> &'static str {
    "`self` is not the lock, which is an argument of its own: remove this `#[lock]`, and write `#[lock] lock: LockContext` \
     behind `self`"
}

pub(crate) fn with_cfg() -> &'static str {
    "the `#[lock]` argument cannot depend on `cfg`: write the whole function twice, each with a `#[cfg(..)]` above it"
}

pub(crate) fn with_content() -> &'static str {
    "`#[lock]` of an argument has no content: write `#[lock] lock: LockContext`"
}

/// The message about the placeholder `written`, which names the `#[lock]` argument.
pub(crate) fn in_name(written: &str) -> String {
    format!("`{written}` is the lock itself, which exists only after its name: name another argument")
}

/// The message about a provider whose expression names the `#[lock]` argument.
pub(crate) fn in_tick(name: &str) -> String {
    format!("`{name}` is the lock itself, which exists only after its name: write another expression")
}

pub(crate) fn in_provider(name: &str) -> String {
    format!("`{name}` is the lock itself, which exists only after its provider: write another expression")
}

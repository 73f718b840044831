//! Messages about `on_busy = path`.

pub(crate) fn unnamed_argument() -> &'static str {
    "the function of `on_busy` gets a reference to each argument, and this one has no name: write a name, and take the \
     value apart in the body"
}

pub(crate) fn conditional_argument() -> &'static str {
    "the function of `on_busy` gets a reference to each argument, so none can depend on `cfg`: write the whole function \
     twice, each with a `#[cfg(..)]` above it"
}

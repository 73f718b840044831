//! Messages about the annotated function.

pub(crate) fn not_a_function(keyword: &str) -> String {
    match keyword {
        "impl" | "trait" | "mod" => {
            format!(
                "`{keyword}` blocks cannot be locked as a whole: put `#[distributed_lock]` on each function inside"
            )
        }
        _ => "only functions can be locked: put `#[distributed_lock]` on an `async fn`".to_owned(),
    }
}

pub(crate) fn no_body() -> &'static str {
    "this function has no body to run under the lock: put `#[distributed_lock]` on the implementations, or add a default body"
}

/// The message about an argument with a syntax that the compiler knows and this macro does not.
pub(crate) fn unread_argument() -> &'static str {
    "`#[distributed_lock]` cannot read this argument: write it with a type alias, or update mongolock"
}

/// The message about a function that is not async: another attribute may have removed the `async`.
pub(crate) fn not_async() -> &'static str {
    "`#[distributed_lock]` needs an `async fn`: if another attribute took the `async` away, such as `#[tokio::test]`, put \
     `#[distributed_lock]` above that one; blocking code calls `mongolock::blocking::LockProvider::run`"
}

/// The message about a function that returns a future in a form that the macro does not know.
pub(crate) fn returns_a_future() -> &'static str {
    "`#[distributed_lock]` needs an `async fn`, or a boxed future in this form: the return type written out, as \
     `Pin<Box<dyn Future<Output = Result<T, E>> + Send>>`, and `Box::pin(async move { .. })` as the whole body"
}

pub(crate) fn stacked() -> &'static str {
    "a function can have only one `#[distributed_lock]`: for a second lock, call a second function from this one"
}

/// The message about a function whose return type, named by `returned`, cannot carry an error.
pub(crate) fn cannot_fail(function: &str, returned: &str) -> String {
    format!(
        "`{function}` returns {returned}, so it cannot report that the lock was not acquired: \
         return `Result<_, E>` where `E: From<mongolock::LockError>`"
    )
}

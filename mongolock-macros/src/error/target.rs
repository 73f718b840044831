//! Sentences about the annotated function and about placeholders that it cannot fill in.

use crate::similar::nearest;

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
    "there is no body to run under the lock: put `#[distributed_lock]` on the implementations, or give a default body"
}

pub(crate) fn not_async() -> &'static str {
    "`#[distributed_lock]` needs an `async fn`; if another attribute removed the `async` (such as `#[tokio::test]`), \
     put `#[distributed_lock]` above it"
}

pub(crate) fn returns_a_future() -> &'static str {
    "`#[distributed_lock]` needs an `async fn`: write `async fn` instead of returning a future"
}

pub(crate) fn stacked() -> &'static str {
    "a function takes one `#[distributed_lock]`: for two locks call a second function, which also shows their order"
}

/// `returned` is `nothing`, or `never` for `!`.
pub(crate) fn cannot_fail(function: &str, returned: &str) -> String {
    format!(
        "`{function}` returns {returned}, so it cannot report that the lock was not taken: \
         return `Result<_, E>` where `E: From<mongolock::LockError>`"
    )
}

/// What the placeholders of one function can name.
pub(crate) struct Takes<'a> {
    pub(crate) function: &'a str,
    pub(crate) receiver: bool,
    pub(crate) arguments: Vec<String>,
}

impl Takes<'_> {
    fn named(&self) -> Vec<&str> {
        let receiver = self.receiver.then_some("self");
        receiver
            .into_iter()
            .chain(self.arguments.iter().map(String::as_str))
            .collect()
    }

    /// `written` is the whole placeholder, `root` the name in it that means nothing.
    pub(crate) fn unknown(&self, written: &str, root: &str) -> String {
        let function = self.function;
        let named = self.named();
        if let Some(near) = nearest(root, named.iter().copied()) {
            let write = written.replacen(root, near, 1);
            return format!("`{function}` has no argument `{root}`: did you mean `{write}`?");
        }
        let named: Vec<_> = named.iter().map(|name| format!("`{name}`")).collect();
        match (named.is_empty(), self.receiver) {
            (true, _) => format!(
                "`{function}` has no argument `{root}`, and none that a placeholder could name: add one, or remove `{written}`"
            ),
            (false, false) => format!(
                "`{function}` has no argument `{root}`: it takes {}",
                named.join(", ")
            ),
            (false, true) => {
                let field = written.replacen('<', "<self.", 1);
                format!(
                    "`{function}` has no argument `{root}`: it takes {}; for a field write `{field}`",
                    named.join(", ")
                )
            }
        }
    }

    pub(crate) fn no_receiver(&self, written: &str) -> String {
        format!(
            "`{written}` needs a method, and `{}` has no `self`: write an argument instead",
            self.function
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_placeholder_is_answered_with_what_there_is() {
        let takes = |receiver, arguments: &[&str]| Takes {
            function: "f",
            receiver,
            arguments: arguments.iter().map(|name| (*name).to_owned()).collect(),
        };
        let unknown = |takes: Takes<'_>| takes.unknown("<idd.x>", "idd");
        assert_eq!(
            unknown(takes(false, &["id"])),
            "`f` has no argument `idd`: did you mean `<id.x>`?"
        );
        assert_eq!(
            unknown(takes(false, &["a", "b"])),
            "`f` has no argument `idd`: it takes `a`, `b`"
        );
        assert_eq!(
            unknown(takes(true, &["a"])),
            "`f` has no argument `idd`: it takes `self`, `a`; for a field write `<self.idd.x>`"
        );
        assert_eq!(
            unknown(takes(false, &[])),
            "`f` has no argument `idd`, and none that a placeholder could name: add one, or remove `<idd.x>`"
        );
    }
}

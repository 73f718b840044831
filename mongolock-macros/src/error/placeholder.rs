//! Messages about placeholders that the annotated function cannot fill in.

use crate::similar::nearest;

/// The advice if another attribute, such as that of a test with cases, has removed the arguments of the function.
const OR_ABOVE: &str = ", or put `#[distributed_lock]` above the attribute that took the arguments away";

/// The names that the placeholders of a function can use.
pub(crate) struct Nameable<'a> {
    pub(crate) function: &'a str,
    /// Whether the function has a `self`.
    pub(crate) receiver: bool,
    pub(crate) arguments: Vec<String>,
}

impl Nameable<'_> {
    /// All names, `self` first.
    fn names(&self) -> Vec<&str> {
        let receiver = self.receiver.then_some("self");
        receiver
            .into_iter()
            .chain(self.arguments.iter().map(String::as_str))
            .collect()
    }

    /// The message about the placeholder `written`, whose first name `root` is not an argument.
    pub(crate) fn unknown(&self, written: &str, root: &str) -> String {
        let function = self.function;
        let names = self.names();
        if let Some(near) = nearest(root, names.iter().copied()) {
            let write = written.replacen(root, near, 1);
            return format!("`{function}` has no argument `{root}`: did you mean `{write}`?");
        }
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        match (names.is_empty(), self.receiver) {
            (true, _) => format!(
                "`{function}` has no argument that a placeholder can name: add the argument `{root}`, remove `{written}`{OR_ABOVE}"
            ),
            (false, false) => format!(
                "`{function}` has no argument `{root}`: it takes {}",
                names.join(", ")
            ),
            (false, true) => {
                let field = written.replacen('<', "<self.", 1);
                format!(
                    "`{function}` has no argument `{root}`: it takes {}; for a field of `self` write `{field}`",
                    names.join(", ")
                )
            }
        }
    }

    /// The message about a placeholder that names `self` in a function without one.
    pub(crate) fn no_receiver(&self, written: &str) -> String {
        format!(
            "`{}` has no `self` to fill in `{written}`: name an argument instead",
            self.function
        )
    }
}

/// The message about the placeholder `written`, which names a variable of the body.
pub(crate) fn local_variable(written: &str, name: &str, has_arguments: bool) -> String {
    let or_above = if has_arguments { "" } else { OR_ABOVE };
    format!(
        "`{name}` in `{written}` is a variable of the body, which runs only after its lock has a name: pass it as an \
         argument{or_above}"
    )
}

/// The message about a placeholder that names the type parameter `name`.
pub(crate) fn a_type(name: &str) -> String {
    format!("`{name}` is a type: write an associated constant of it, such as `<{name}::KIND>`")
}

/// The message about the placeholder `written`, whose first method consumes a part of an argument.
pub(crate) fn consumes(written: &str, method: &str) -> String {
    format!(
        "`{method}` in `{written}` takes the value away from the function, but a lock name is made of references: \
         name a field, or a method that takes `&self`"
    )
}

//! `on_busy = path`: a function of the user's that makes the return value of a call whose lock is busy.

use proc_macro2::Ident;
use syn::{FnArg, Pat, Path};

use crate::error::{Errors, busy_function};
use crate::function::Function;

/// The function and what it is called with.
#[derive(Debug, Clone)]
pub(crate) struct BusyFunction {
    pub(crate) path: Path,
    /// `self` and the arguments, of which it gets references.
    pub(crate) arguments: Vec<Ident>,
}

impl BusyFunction {
    /// Every argument of `function` needs a name, which is reported otherwise.
    pub(crate) fn new(path: Path, function: Option<&Function>, errors: &mut Errors) -> Self {
        let inputs = function
            .into_iter()
            .flat_map(|function| &function.signature.inputs);
        let mut arguments = Vec::new();
        for input in inputs {
            match input {
                FnArg::Receiver(receiver) => arguments.push(Ident::new("self", receiver.self_token.span)),
                FnArg::Typed(argument) => match &*argument.pat {
                    Pat::Ident(binding) if binding.subpat.is_none() && binding.by_ref.is_none() => {
                        arguments.push(binding.ident.clone());
                    }
                    pattern => errors.push_spanned(pattern, busy_function::unnamed_argument()),
                },
            }
        }
        Self { path, arguments }
    }
}

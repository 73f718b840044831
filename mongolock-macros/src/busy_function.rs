//! `on_busy = path`: a function of the user's that makes the return value of a call whose lock is busy.

use proc_macro2::Ident;
use syn::{Attribute, ExprPath, FnArg, Pat};

use crate::error::{Errors, busy_function};
use crate::function::Function;

/// The function and what it is called with.
#[derive(Clone)]
pub(crate) struct BusyFunction {
    pub(crate) path: ExprPath,
    /// `self` and the arguments, of which it gets references.
    pub(crate) arguments: Vec<Ident>,
}

impl BusyFunction {
    /// Every argument of `function` needs a name and must always be there, which is reported otherwise.
    pub(crate) fn new(path: ExprPath, function: Option<&Function>, errors: &mut Errors) -> Self {
        let inputs = function
            .into_iter()
            .flat_map(|function| &function.signature.inputs);
        let mut arguments = Vec::new();
        for input in inputs {
            for attribute in attributes(input).iter().filter(|one| one.path().is_ident("cfg")) {
                errors.push_spanned(attribute, busy_function::conditional_argument());
            }
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

/// The attributes of an argument.
fn attributes(input: &FnArg) -> &[Attribute] {
    match input {
        FnArg::Receiver(receiver) => &receiver.attrs,
        FnArg::Typed(argument) => &argument.attrs,
    }
}

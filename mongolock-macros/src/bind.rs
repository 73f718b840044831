//! Joins the placeholders of a name with the arguments of the function.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::{FnArg, Receiver};

use crate::error::{Errors, target};
use crate::item::Function;
use crate::name::{self, Piece, Placeholder, Step};
use crate::text::Text;

/// One part of a name whose placeholders have been found among the arguments.
#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    Value(Value),
}

/// A value of the name.
#[derive(Debug)]
pub(crate) struct Value {
    /// The placeholder as written, for the message about an empty value.
    pub(crate) written: String,
    /// Stands at the placeholder and means the argument, wherever a `macro_rules!` took each of them from.
    pub(crate) root: Ident,
    pub(crate) steps: Vec<Step>,
    /// The place of the placeholder.
    pub(crate) span: Span,
}

/// The name of the lock as parts; every mistake of the template and its placeholders is reported.
pub(crate) fn bind(text: &Text, function: &Function, errors: &mut Errors) -> Vec<Part> {
    let (pieces, mistakes) = name::parse(text.value());
    for (range, mistake) in mistakes {
        errors.push(text.at(range), mistake);
    }
    let scope = Scope::new(function);
    pieces
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(Part::Text(text)),
            Piece::Placeholder(hole) => scope.value(hole, text, errors).map(Part::Value),
        })
        .collect()
}

/// What a placeholder can name.
struct Scope<'a> {
    function: &'a Function,
    receiver: Option<&'a Receiver>,
    bindings: Vec<&'a Ident>,
}

impl<'a> Scope<'a> {
    fn new(function: &'a Function) -> Self {
        let receiver = function.signature.inputs.iter().find_map(|input| match input {
            FnArg::Receiver(receiver) => Some(receiver),
            FnArg::Typed(_) => None,
        });
        Self {
            function,
            receiver,
            bindings: function.bindings(),
        }
    }

    fn value(&self, hole: Placeholder, text: &Text, errors: &mut Errors) -> Option<Value> {
        let written = text
            .value()
            .get(hole.range.clone())
            .unwrap_or_default()
            .to_owned();
        let span = text.at(hole.range);
        let Some(root) = self.root(&hole.root, span) else {
            errors.push(span, self.complaint(&written, &hole.root));
            return None;
        };
        Some(Value {
            written,
            root,
            steps: hole.steps,
            span,
        })
    }

    /// The literal's place with the argument's hygiene, the only combination that survives every mix of
    /// caller and `macro_rules!`.
    fn root(&self, name: &str, span: Span) -> Option<Ident> {
        if name == "self" {
            return self
                .receiver
                .map(|receiver| Ident::new("self", span.resolved_at(receiver.self_token.span)));
        }
        let argument = self.bindings.iter().find(|binding| binding.unraw() == name)?;
        let mut root = Ident::clone(argument);
        root.set_span(span.resolved_at(argument.span()));
        Some(root)
    }

    fn complaint(&self, written: &str, root: &str) -> String {
        // Other attributes rename arguments to names that nobody wrote.
        let visible = self.bindings.iter().map(|binding| binding.unraw().to_string());
        let mut arguments: Vec<String> = Vec::new();
        for name in visible.filter(|name| !name.starts_with("__")) {
            if !arguments.contains(&name) {
                arguments.push(name);
            }
        }
        let function = &self.function.name();
        let takes = target::Takes {
            function,
            receiver: self.receiver.is_some(),
            arguments,
        };
        if root == "self" {
            takes.no_receiver(written)
        } else {
            takes.unknown(written, root)
        }
    }
}

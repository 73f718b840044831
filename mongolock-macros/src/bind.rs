//! Joins the placeholders of a name with the arguments of the function.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::{FnArg, Receiver};

use crate::error::placeholder::{self, Nameable, consumes};
use crate::error::{Errors, lock_argument};
use crate::function::Function;
use crate::lock_argument::LockArgument;
use crate::string_literal::StringLiteral;
use crate::template::{Piece, Placeholder, Step, parse};

/// One part of a lock name whose placeholders have been resolved to arguments.
#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    Value(Value),
}

/// An argument, or a part of one, whose value is filled in when the function is called.
#[derive(Debug)]
pub(crate) struct Value {
    /// The placeholder as written, which the error about an empty value quotes.
    pub(crate) written: String,
    /// The argument: its source position is that of the placeholder, and its hygiene is that of the argument.
    pub(crate) root: Ident,
    /// The fields and methods that lead from the argument to the value.
    pub(crate) steps: Vec<Step>,
    /// The source position of the placeholder.
    pub(crate) span: Span,
}

/// Resolves the placeholders of a lock name; every mistake of the template and its placeholders is reported.
pub(crate) fn bind(template: &StringLiteral, function: &Function, errors: &mut Errors) -> Vec<Part> {
    let (pieces, mistakes) = parse(template.value());
    for (range, mistake) in mistakes {
        errors.push(template.span_of(range), mistake);
    }
    let scope = Scope::new(function);
    pieces
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(Part::Text(text)),
            Piece::Placeholder(placeholder) => scope.resolve(placeholder, template, errors).map(Part::Value),
        })
        .collect()
}

/// The arguments of a function, which its placeholders can name.
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

    fn resolve(
        &self,
        placeholder: Placeholder,
        template: &StringLiteral,
        errors: &mut Errors,
    ) -> Option<Value> {
        let written = template
            .value()
            .get(placeholder.range.clone())
            .unwrap_or_default()
            .to_owned();
        let span = template.span_of(placeholder.range);
        let lock_argument = self.function.lock_argument.as_ref().and_then(LockArgument::name);
        if lock_argument.is_some_and(|name| name.unraw() == placeholder.root.as_str()) {
            errors.push(span, lock_argument::in_name(&written));
            return None;
        }
        let Some(root) = self.root(&placeholder.root, span) else {
            errors.push(span, self.not_found(&written, &placeholder.root));
            return None;
        };
        // By Rust's naming rules such a method consumes its value; that of a result consumes no argument.
        let first = placeholder.steps.iter().find_map(|step| match step {
            Step::Method(method) => Some(method),
            Step::Field(_) | Step::Index(_) => None,
        });
        if let Some(method) = first.filter(|method| method.starts_with("into_")) {
            errors.push(span, consumes(&written, method));
        }
        Some(Value {
            written,
            root,
            steps: placeholder.steps,
            span,
        })
    }

    /// The argument with the literal's source position and the argument's own hygiene: only this combination compiles
    /// when a `macro_rules!` generates the literal, the argument, or both.
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

    /// The message about a placeholder that names no argument.
    fn not_found(&self, written: &str, root: &str) -> String {
        // Names that begin with `__` come from other attributes, so the message does not suggest them.
        let visible = self.bindings.iter().map(|binding| binding.unraw().to_string());
        let mut arguments: Vec<String> = Vec::new();
        for name in visible.filter(|name| !name.starts_with("__")) {
            if !arguments.contains(&name) {
                arguments.push(name);
            }
        }
        if declares(self.function.body.stream(), root) {
            return placeholder::local_variable(written, root);
        }
        let function = &self.function.name();
        let nameable = Nameable {
            function,
            receiver: self.receiver.is_some(),
            arguments,
        };
        if root == "self" {
            nameable.no_receiver(written)
        } else {
            nameable.unknown(written, root)
        }
    }
}

/// Whether a body declares a variable of this name.
fn declares(body: TokenStream, name: &str) -> bool {
    let is = |token: Option<&TokenTree>, word: &str| matches!(token, Some(TokenTree::Ident(ident)) if ident.unraw() == word);
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Group(group) => declares(group.stream(), name),
        token if is(Some(token), "let") => {
            let next = at + 1 + usize::from(is(tokens.get(at + 1), "mut"));
            is(tokens.get(next), name)
        }
        _ => false,
    })
}

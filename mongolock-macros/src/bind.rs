//! Joins the placeholders of a name with the arguments of the function.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::{FnArg, Receiver};

use crate::error::placeholder::{self, Nameable, consumes};
use crate::error::{Errors, lock_argument};
use crate::function::Function;
use crate::identifier::identifier;
use crate::lock_argument::LockArgument;
use crate::string_literal::StringLiteral;
use crate::template::{self, Access, Piece, Placeholder, Root, TemplateMistake};

/// One part of a lock name whose placeholders have been resolved to arguments.
#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    Value(BoundValue),
}

/// An argument or a constant, or a part of one, whose value is filled in when the function is called.
#[derive(Debug)]
pub(crate) struct BoundValue {
    /// The placeholder as written, which the error about an empty value quotes.
    pub(crate) written: String,
    /// The argument: its source position is that of the placeholder, and its hygiene is that of the argument. Or the
    /// path of a constant.
    pub(crate) root: TokenStream,
    /// The fields and methods that lead from the root to the value.
    pub(crate) steps: Vec<Access>,
    /// The character that is escaped in the value, and `%` with it; `None` if nothing is escaped.
    pub(crate) separator: Option<char>,
    /// The source position of the placeholder.
    pub(crate) span: Span,
}

/// Resolves the placeholders of a lock name; every mistake of the template and its placeholders is reported.
pub(crate) fn bind(template: &StringLiteral, function: &Function, errors: &mut Errors) -> Vec<Part> {
    let pieces = pieces(template, errors);
    let scope = Scope::new(function);
    let mut parts = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let separator = template::separator(&pieces, at);
        parts.extend(match piece {
            Piece::Text(text) => Some(Part::Text(text.clone())),
            Piece::Placeholder(placeholder) => scope
                .resolve(placeholder, separator, template, errors)
                .map(Part::Value),
        });
    }
    parts
}

/// Parses a template and reports its mistakes.
pub(crate) fn pieces(template: &StringLiteral, errors: &mut Errors) -> Vec<Piece> {
    let (pieces, mut mistakes) = template::parse(template.value());
    mistakes.extend(template::ambiguous_separators(template.value(), &pieces));
    for (range, mistake) in mistakes {
        errors.push(template.span_of(range), mistake);
    }
    pieces
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
        placeholder: &Placeholder,
        separator: Option<char>,
        template: &StringLiteral,
        errors: &mut Errors,
    ) -> Option<BoundValue> {
        let written = &template.value()[placeholder.range.clone()];
        let span = template.span_of(placeholder.range.clone());
        let lock_argument = self.function.lock_argument.as_ref().and_then(LockArgument::name);
        let root = match &placeholder.root {
            Root::Name(name) if lock_argument.is_some_and(|argument| argument.unraw() == name) => {
                Err(lock_argument::in_name(written))
            }
            Root::Name(name) if self.is_type(name) => Err(placeholder::a_type(name)),
            Root::Name(name) => self
                .named(name, span)
                .ok_or_else(|| self.not_found(written, name)),
            Root::Constant { of, name } => Ok(associated_constant(of, name, span)),
            Root::Index(_) => Err(TemplateMistake::not_a_path(written).to_string()),
        };
        let root = root.map_err(|message| errors.push(span, message)).ok()?;
        // By Rust's naming rules such a method consumes its value; that of a result consumes no argument.
        let first = placeholder.steps.iter().find_map(|step| match step {
            Access::Method(method) => Some(method),
            Access::Field(_) | Access::Index(_) => None,
        });
        if let Some(method) = first.filter(|method| method.starts_with("into_")) {
            errors.push(span, consumes(written, method));
        }
        Some(BoundValue {
            written: written.to_owned(),
            root,
            steps: placeholder.steps.clone(),
            separator,
            span,
        })
    }

    /// The argument or the constant of this name.
    fn named(&self, name: &str, span: Span) -> Option<TokenStream> {
        let found = self
            .argument(name, span)
            .or_else(|| self.const_generic(name, span))
            .or_else(|| self.constant(name, span));
        found.map(ToTokens::into_token_stream)
    }

    /// The argument with the literal's source position and the argument's own hygiene: only this combination compiles
    /// when a `macro_rules!` generates the literal, the argument, or both.
    fn argument(&self, name: &str, span: Span) -> Option<Ident> {
        if name == "self" {
            return self
                .receiver
                .map(|receiver| Ident::new("self", span.resolved_at(receiver.self_token.span)));
        }
        let argument = self.bindings.iter().find(|binding| binding.unraw() == name)?;
        Some(located(argument, span))
    }

    /// Whether a type parameter of the function has this name.
    fn is_type(&self, name: &str) -> bool {
        let mut parameters = self.function.signature.generics.type_params();
        parameters.any(|parameter| parameter.ident.unraw() == name)
    }

    /// The const generic of the function, with the source position of the literal.
    fn const_generic(&self, name: &str, span: Span) -> Option<Ident> {
        let mut parameters = self.function.signature.generics.const_params();
        let parameter = parameters.find(|parameter| parameter.ident.unraw() == name)?;
        Some(located(&parameter.ident, span))
    }

    /// A constant that the attribute does not see, such as a const generic of the `impl` block. A name that is not in
    /// upper case is taken for a misspelt argument, and so is one that differs from an argument only in its case. The
    /// position of the literal alone would let the compiler suggest changes of the literal.
    fn constant(&self, name: &str, span: Span) -> Option<Ident> {
        let is_constant =
            is_upper_case(name) && !self.bindings.iter().any(|binding| is_same_word(binding, name));
        is_constant.then(|| identifier(name, span.resolved_at(Span::call_site())))
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
            return placeholder::local_variable(written, root, !self.function.signature.inputs.is_empty());
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

/// The same word at this place.
fn located(word: &Ident, at: Span) -> Ident {
    let mut located = word.clone();
    located.set_span(at.resolved_at(word.span()));
    located
}

/// The path of an associated constant.
pub(crate) fn associated_constant(of: &str, name: &str, span: Span) -> TokenStream {
    let span = span.resolved_at(Span::call_site());
    let of = match of {
        "Self" => Ident::new("Self", span),
        of => identifier(of, span),
    };
    let name = identifier(name, span);
    quote_spanned!(span=> #of::#name)
}

/// Whether a name is written as those of constants are.
fn is_upper_case(name: &str) -> bool {
    name.chars().any(char::is_uppercase) && !name.chars().any(char::is_lowercase)
}

/// Whether the argument and the name differ at most in their case.
fn is_same_word(argument: &Ident, name: &str) -> bool {
    argument.unraw().to_string().to_lowercase() == name.to_lowercase()
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

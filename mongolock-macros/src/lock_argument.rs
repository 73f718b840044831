//! The argument `#[lock] lock: LockContext`: the attribute fills it in, and callers do not pass it.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Attribute, FnArg, Meta, Pat, PatType, Signature, Type};

use crate::error::{Errors, lock_argument};

/// The argument that receives the context of the lock.
pub(crate) struct LockArgument {
    /// An identifier or `_`.
    pub(crate) pattern: Pat,
    pub(crate) ty: Type,
    /// The other attributes, such as `#[allow(..)]`, which move to the variable.
    pub(crate) attributes: Vec<Attribute>,
}

impl LockArgument {
    /// Takes the argument out of a signature; a second one, or one of another form, is reported.
    pub(crate) fn take(signature: &mut Signature, errors: &mut Errors) -> Option<Self> {
        if !signature.inputs.iter().any(is_lock) {
            return None;
        }
        let mut taken: Option<Self> = None;
        let mut others = Punctuated::new();
        for pair in std::mem::take(&mut signature.inputs).into_pairs() {
            let (input, comma) = pair.into_tuple();
            match input {
                FnArg::Typed(argument) if is_lock(&FnArg::Typed(argument.clone())) => {
                    check(&argument, taken.is_some(), errors);
                    taken.get_or_insert(Self {
                        pattern: *argument.pat,
                        ty: *argument.ty,
                        attributes: others_than_lock(argument.attrs),
                    });
                }
                other => {
                    others.push_value(other);
                    if let Some(comma) = comma {
                        others.push_punct(comma);
                    }
                }
            }
        }
        signature.inputs = others;
        taken
    }

    /// The name of the argument; nothing for `_`.
    pub(crate) fn name(&self) -> Option<&Ident> {
        match &self.pattern {
            Pat::Ident(binding) => Some(&binding.ident),
            _ => None,
        }
    }

    /// Whether the tokens name the argument, which has no value before the lock is acquired.
    pub(crate) fn is_named_in(&self, tokens: TokenStream) -> bool {
        self.name().is_some_and(|name| {
            let tokens: Vec<TokenTree> = tokens.into_iter().collect();
            tokens.iter().enumerate().any(|(at, token)| match token {
                TokenTree::Ident(ident) => ident.unraw() == name.unraw() && is_variable(&tokens, at),
                TokenTree::Group(group) => self.is_named_in(group.stream()),
                _ => false,
            })
        })
    }

    /// The body with the argument as a variable without a value, for a function that is returned because of a mistake.
    pub(crate) fn without_value(&self, attributes: &TokenStream, block: &Group) -> TokenStream {
        let Self {
            pattern,
            ty,
            attributes: of_argument,
        } = self;
        quote!({
            #attributes
            #(#of_argument)* let #pattern: #ty = ::core::option::Option::unwrap(::core::option::Option::None);
            #block
        })
    }
}

/// Whether the identifier at this position can be a variable, and not a field, a method, a function that is called or a
/// part of a path.
fn is_variable(tokens: &[TokenTree], at: usize) -> bool {
    let is = |at: Option<usize>, sign: char| {
        let token = at.and_then(|at| tokens.get(at));
        matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
    };
    let (one, two) = (at.checked_sub(1), at.checked_sub(2));
    let after_dot = is(one, '.') && !is(two, '.');
    let after_path = is(one, ':') && is(two, ':');
    let is_called = match tokens.get(at + 1) {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
        _ => false,
    };
    !after_dot && !after_path && !is_called && !is(Some(at + 1), ':')
}

/// Whether an argument has the attribute `#[lock]`.
fn is_lock(input: &FnArg) -> bool {
    matches!(input, FnArg::Typed(argument) if argument.attrs.iter().any(|attribute| attribute.path().is_ident("lock")))
}

/// The attributes that the variable keeps. With a `cfg`, which is reported, the variable would be missing.
fn others_than_lock(attributes: Vec<Attribute>) -> Vec<Attribute> {
    let is = |attribute: &Attribute, word: &str| attribute.path().is_ident(word);
    let mut others = attributes;
    others.retain(|attribute| !is(attribute, "lock") && !is(attribute, "cfg"));
    others
}

/// Reports an argument that the attribute cannot fill in.
fn check(argument: &PatType, is_second: bool, errors: &mut Errors) {
    if is_second {
        errors.push_spanned(argument, lock_argument::second());
        return;
    }
    for attribute in &argument.attrs {
        if attribute.path().is_ident("cfg") {
            errors.push_spanned(attribute, lock_argument::with_cfg());
        } else if attribute.path().is_ident("lock") && !matches!(attribute.meta, Meta::Path(_)) {
            errors.push_spanned(attribute, lock_argument::with_content());
        }
    }
    let plain = match &*argument.pat {
        Pat::Wild(_) => true,
        Pat::Ident(binding) => {
            binding.by_ref.is_none() && binding.mutability.is_none() && binding.subpat.is_none()
        }
        _ => false,
    };
    if !plain {
        errors.push_spanned(&argument.pat, lock_argument::not_a_name());
    }
    let by_value = matches!(&*argument.ty, Type::Path(path)
        if path.path.segments.last().is_some_and(|segment| segment.ident == "LockContext"));
    if !by_value {
        errors.push_spanned(
            &argument.ty,
            lock_argument::other_type(&argument.ty.to_token_stream().to_string()),
        );
    }
}

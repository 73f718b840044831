//! The argument `#[lock] lock: LockContext`: the attribute fills it in, and callers do not pass it.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{Attribute, FnArg, Meta, Pat, PatType, Type, TypePath};

use crate::argument_list::{Argument, ArgumentList};
use crate::error::{Errors, lock_argument};
use crate::written::{bare, written};

/// The argument that receives the context of the lock.
pub(crate) struct LockArgument {
    /// An identifier or `_`.
    pub(crate) pattern: Pat,
    /// The type without parentheses and invisible groups; `Type::Verbatim` while it is being typed.
    pub(crate) ty: Type,
    /// The other attributes, such as `#[allow(..)]`, which move to the variable.
    pub(crate) attributes: Vec<Attribute>,
}

impl LockArgument {
    /// Takes the argument out of a list; a second one, or one of another form, is reported.
    pub(crate) fn take(list: &mut ArgumentList, errors: &mut Errors) -> Option<Self> {
        let mut taken: Option<Self> = None;
        for mut argument in std::mem::take(&mut list.arguments) {
            match argument.read.take() {
                Some(FnArg::Typed(typed)) if typed.attrs.iter().any(is_lock) => {
                    list.is_changed = true;
                    check(&typed, taken.is_some(), errors);
                    taken.get_or_insert_with(|| Self::new(typed));
                }
                Some(FnArg::Receiver(mut receiver)) if receiver.attrs.iter().any(is_lock) => {
                    list.is_changed = true;
                    errors.push_spanned(&receiver, lock_argument::receiver());
                    receiver.attrs.retain(|attribute| !is_lock(attribute));
                    list.arguments.push(Argument {
                        tokens: quote!(#receiver,),
                        read: Some(FnArg::Receiver(receiver)),
                    });
                }
                read => list.arguments.push(Argument { read, ..argument }),
            }
        }
        taken
    }

    fn new(argument: PatType) -> Self {
        let is_dropped = |attribute: &Attribute| is_lock(attribute) || attribute.path().is_ident("cfg");
        let mut attributes = argument.attrs;
        // With a `cfg`, which is reported, the variable would be missing.
        attributes.retain(|attribute| !is_dropped(attribute));
        Self {
            pattern: *argument.pat,
            ty: bare(&argument.ty).clone(),
            attributes,
        }
    }

    /// The name of the argument; nothing for `_`.
    pub(crate) fn name(&self) -> Option<&Ident> {
        match &self.pattern {
            Pat::Ident(binding) => Some(&binding.ident),
            _ => None,
        }
    }

    /// The argument as a variable without a value, for a function that is returned because of a mistake. The path of the
    /// runtime crate gives the type while that is still being typed.
    pub(crate) fn without_value(&self, runtime: &TokenStream) -> TokenStream {
        let Self {
            pattern,
            ty,
            attributes,
        } = self;
        let ty = match ty {
            Type::Verbatim(_) => quote!(#runtime::LockContext),
            ty => quote!(#ty),
        };
        quote! {
            #(#attributes)* let #pattern: #ty = ::core::option::Option::unwrap(::core::option::Option::None);
        }
    }
}

/// Whether this is the attribute `#[lock]`.
fn is_lock(attribute: &Attribute) -> bool {
    attribute.path().is_ident("lock")
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
        } else if is_lock(attribute) && !matches!(attribute.meta, Meta::Path(_)) {
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
    let last = |path: &TypePath| path.path.segments.last().map(|last| last.ident.clone());
    let is_context = match bare(&argument.ty) {
        Type::Path(path) => last(path).is_some_and(|last| last == "LockContext"),
        Type::Verbatim(_) => true,
        _ => false,
    };
    if !is_context {
        let ty = written(argument.ty.to_token_stream());
        errors.push_spanned(&argument.ty, lock_argument::other_type(&ty));
    }
}

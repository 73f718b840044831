//! The values of `name`: a template, a declared name, or a list of them.

use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Expr, Ident, Lit, LitStr, Path, Token, bracketed};

use super::suggestion::without_parentheses;
use super::value::{skip_value, whole};
use crate::error::{Errors, argument};
use crate::key::Arg;
use crate::string_literal::StringLiteral;

/// An element of a list of names.
pub(crate) enum ListedName {
    Template(StringLiteral),
    /// A value whose type declares the name.
    Value(Expr),
}

/// Reads a list of names; an element that is not a name is reported and skipped.
pub(super) fn list(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Vec<ListedName>> {
    let list;
    let bracket = bracketed!(list in input);
    let mut names = Vec::new();
    if list.is_empty() {
        errors.push(bracket.span.join(), argument::empty_list());
    }
    while !list.is_empty() {
        if let Some(literal) = whole::<LitStr>(&list, |_| true) {
            match literal.suffix() {
                "" => names.push(ListedName::Template(StringLiteral::new(&literal))),
                suffix => errors.push(literal.span(), argument::suffixed(Arg::Name, suffix)),
            }
        } else if let Some(value) = whole(&list, is_declared) {
            names.push(ListedName::Value(value));
        } else {
            errors.push_spanned(skip_value(&list)?, argument::not_a_name_in_list());
        }
        list.parse::<Option<Token![,]>>()?;
    }
    Ok(names)
}

/// Whether an expression can be a lock name: a path such as `Lock::Nightly`, or a struct or a tuple variant with its
/// fields. Any other call gives the name as text, which is not accepted.
pub(super) fn is_declared(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Struct(_) => true,
        Expr::Group(group) => is_declared(&group.expr),
        Expr::Call(call) => {
            let is_upper_case = |path: &Path| {
                path.segments
                    .last()
                    .is_some_and(|last| is_upper_case(&last.ident))
            };
            matches!(&*call.func, Expr::Path(path) if is_upper_case(&path.path))
        }
        _ => false,
    }
}

/// Whether the input is a lock name without its key, and not a misspelt key or a misspelt value of another argument.
pub(super) fn is_alone(input: ParseStream<'_>) -> bool {
    let name = skip_value(input).map(without_parentheses);
    name.and_then(syn::parse2).is_ok_and(|name| is_name(&name))
}

fn is_name(expr: &Expr) -> bool {
    let is_type = |path: &Path| match path.get_ident() {
        Some(word) => {
            let text = word.to_string();
            is_upper_case(word)
                && Arg::meant(&text)
                    .or(Arg::with_choice(&text.to_lowercase()))
                    .is_none()
        }
        None => true,
    };
    match expr {
        Expr::Lit(literal) => matches!(literal.lit, Lit::Str(_)),
        Expr::Array(list) => !list.elems.is_empty(),
        Expr::Path(path) => is_type(&path.path),
        Expr::Struct(value) => is_type(&value.path),
        Expr::Call(call) => {
            is_declared(expr) && matches!(&*call.func, Expr::Path(path) if is_type(&path.path))
        }
        _ => false,
    }
}

/// Whether a word begins like the name of a type, a variant or a constant.
fn is_upper_case(word: &Ident) -> bool {
    word.unraw().to_string().starts_with(char::is_uppercase)
}

//! Suggestions for values that are wrong.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Expr, ExprLit, ExprPath, Lit, Member, PathArguments, TypePath};

use crate::format_call;
use crate::key::Arg;
use crate::written::written;

/// The argument with this value after its `=`, with quotes if it needs them.
pub(super) fn assignment(key: Arg, value: &TokenStream) -> String {
    let value = without_parentheses(value.clone());
    let has_comma = |token: TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ',');
    match with_quotes(key, &value) {
        Some(write) => write,
        None if value.is_empty() => key.example().to_owned(),
        None if key == Arg::Name && value.clone().into_iter().any(has_comma) => {
            format!("name = [{}]", written(value))
        }
        None => format!("{} = {}", key.as_str(), written(value)),
    }
}

/// The argument instead of one whose value is not a string literal, if that makes it valid.
pub(super) fn instead(key: Arg, value: &TokenStream) -> Option<String> {
    match key {
        Arg::Name => format_call::template(value).map(|template| format!("name = {template:?}")),
        Arg::OnBusy => with_quotes(key, value).or_else(|| function(value)),
        _ => with_quotes(key, value),
    }
}

/// The argument with its value in quotes, such as `expiry = "30s"` for `30`, if that makes it valid.
fn with_quotes(key: Arg, value: &TokenStream) -> Option<String> {
    let mut tokens = value.clone().into_iter();
    let word = match (tokens.next()?, tokens.next()) {
        (TokenTree::Ident(_), Some(_)) => constructed_duration(value)?,
        (TokenTree::Ident(word), None) if key != Arg::Name => word.to_string().to_lowercase(),
        (TokenTree::Literal(literal), None) => match Lit::new(literal) {
            Lit::Int(number) if number.suffix().is_empty() => format!("{}s", number.base10_digits()),
            Lit::Int(number) => number.to_string(),
            _ => return None,
        },
        _ => return None,
    };
    let known = match key {
        Arg::OnBusy | Arg::OnLost | Arg::Release => key.choices().contains(&word.as_str()),
        Arg::AcquireTimeout if word == "none" => true,
        Arg::AcquireTimeout | Arg::Duration(_) => crate::duration::parse(&word).is_ok(),
        Arg::Name | Arg::Once | Arg::OnceAt | Arg::Permits | Arg::Provider | Arg::Crate => false,
    };
    known.then(|| format!("{} = \"{word}\"", key.as_str()))
}

/// The duration of a constructor such as `Duration::from_secs(90)`.
fn constructed_duration(value: &TokenStream) -> Option<String> {
    let Expr::Call(call) = syn::parse2(value.clone()).ok()? else {
        return None;
    };
    let Expr::Path(constructor) = &*call.func else {
        return None;
    };
    let unit = match constructor.path.segments.last()?.ident.to_string().as_str() {
        "from_millis" => "ms",
        "from_secs" => "s",
        "from_mins" => "m",
        "from_hours" => "h",
        "from_days" => "d",
        _ => return None,
    };
    match call.args.iter().collect::<Vec<_>>().as_slice() {
        [
            Expr::Lit(ExprLit {
                lit: Lit::Int(number),
                ..
            }),
        ] => Some(format!("{}{unit}", number.base10_digits())),
        _ => None,
    }
}

/// `on_busy` with the path of the function that the value calls, borrows or names without `::` before its types.
fn function(value: &TokenStream) -> Option<String> {
    let path = match syn::parse2::<Expr>(value.clone()) {
        Ok(Expr::Call(call)) => call.func.into_token_stream(),
        Ok(Expr::Reference(reference)) => reference.expr.into_token_stream(),
        Ok(Expr::Field(field)) => {
            let is_self = matches!(&*field.base, Expr::Path(base) if base.path.is_ident("self"));
            let Member::Named(method) = field.member else {
                return None;
            };
            is_self
                .then(|| format!("Self::{method}").parse().ok())
                .flatten()?
        }
        _ => {
            let mut types = syn::parse2::<TypePath>(value.clone()).ok()?;
            for segment in &mut types.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    arguments.colon2_token.get_or_insert_default();
                }
            }
            types.into_token_stream()
        }
    };
    syn::parse2::<ExprPath>(path.clone()).ok()?;
    Some(format!("on_busy = {}", written(path)))
}

/// The number that a value has in quotes or with a suffix.
pub(super) fn number(value: &TokenStream) -> Option<String> {
    match syn::parse2::<Lit>(value.clone()).ok()? {
        Lit::Int(number) => Some(number.base10_digits().to_owned()),
        Lit::Str(text) => text.value().parse::<u32>().ok().map(|number| number.to_string()),
        _ => None,
    }
}

/// The path of a constant, which an attribute cannot read.
pub(super) fn constant(value: &TokenStream) -> Option<String> {
    let path = syn::parse2::<ExprPath>(value.clone()).ok()?;
    let last = path.path.segments.last()?.ident.to_string();
    (!last.chars().any(char::is_lowercase)).then(|| written(value.clone()))
}

/// The tokens inside the parentheses, if these are around all of them.
pub(super) fn without_parentheses(value: TokenStream) -> TokenStream {
    let mut tokens = value.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None)
            if matches!(group.delimiter(), Delimiter::Parenthesis | Delimiter::None) =>
        {
            without_parentheses(group.stream())
        }
        _ => value,
    }
}

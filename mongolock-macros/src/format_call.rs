//! The template that is equivalent to a call of `format!`, for the message about a name that is an expression.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Expr, Lit, Macro, Token};

use crate::template;

/// The template that gives the same names as `format!("report:{}", id)`; nothing if there is none.
pub(crate) fn template(value: &TokenStream) -> Option<String> {
    let call: Macro =
        syn::parse2(value.clone())
            .ok()
            .or_else(|| match syn::parse2(value.clone()).ok()? {
                Expr::Reference(reference) => match *reference.expr {
                    Expr::Macro(call) => Some(call.mac),
                    _ => None,
                },
                _ => None,
            })?;
    if call.path.segments.last()?.ident != "format" {
        return None;
    }
    let arguments = Punctuated::<Expr, Token![,]>::parse_terminated
        .parse2(call.tokens)
        .ok()?;
    let mut arguments = arguments.into_iter();
    let Expr::Lit(first) = arguments.next()? else {
        return None;
    };
    let Lit::Str(text) = first.lit else {
        return None;
    };
    let written = translated(&text.value(), &arguments.collect::<Vec<_>>())?;
    template::parse(&written).1.is_empty().then_some(written)
}

/// The format string with its holes as placeholders.
fn translated(text: &str, arguments: &[Expr]) -> Option<String> {
    let mut written = String::new();
    let (mut rest, mut next) = (text, 0);
    while let Some(hole) = rest.find('{') {
        let end = hole + rest[hole..].find('}')?;
        written += &doubled(&rest[..hole]);
        let name = match &rest[hole + 1..end] {
            "" => {
                next += 1;
                path(arguments.get(next - 1)?)?
            }
            position if position.bytes().all(|byte| byte.is_ascii_digit()) => {
                path(arguments.get(position.parse::<usize>().ok()?)?)?
            }
            name => arguments
                .iter()
                .find_map(|argument| assigned(argument, name))
                .unwrap_or_else(|| name.to_owned()),
        };
        written.extend(["<", &name, ">"]);
        rest = &rest[end + 1..];
    }
    Some(written + &doubled(rest))
}

/// Fixed text of a format string as that of a template.
fn doubled(text: &str) -> String {
    text.replace('<', "<<").replace('>', ">>")
}

/// The value of the named argument `name = value`.
fn assigned(argument: &Expr, name: &str) -> Option<String> {
    match argument {
        Expr::Assign(assign) if assign.left.to_token_stream().to_string() == name => path(&assign.right),
        _ => None,
    }
}

/// An expression as the path of a placeholder.
fn path(argument: &Expr) -> Option<String> {
    let bare = match argument {
        Expr::Assign(assign) => &*assign.right,
        Expr::Reference(reference) => &*reference.expr,
        other => other,
    };
    let written = bare.to_token_stream().to_string().replace(' ', "");
    Some(written).filter(|written| !written.contains(['<', '>', '"']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tokens;

    #[test]
    fn a_call_of_format_is_translated() {
        for (call, expected) in [
            (r#"format!("report:{}", id)"#, Some("report:<id>")),
            (r#"format!("{id}")"#, Some("<id>")),
            (
                r#"&format!("{}:{}", order.tenant, &order.id())"#,
                Some("<order.tenant>:<order.id()>"),
            ),
            (r#"std::format!("{1}:{0}", a, b)"#, Some("<b>:<a>")),
            (r#"format!("{x}:{y}", x = self.a.0)"#, Some("<self.a.0>:<y>")),
            (r#"format!("a<{}>", id)"#, Some("a<<<id>>>")),
            (r#"format!("fixed")"#, Some("fixed")),
            (r#"format!("{:03}", id)"#, None),
            (r#"format!("{}", id + 1)"#, None),
            (r#"format!("{}")"#, None),
            (r#"format!("{{}}")"#, None),
            ("format!(TEMPLATE, id)", None),
            (r#"concat!("a", "b")"#, None),
            ("NAME", None),
        ] {
            assert_eq!(template(&tokens(call)).as_deref(), expected, "{call}");
        }
    }
}

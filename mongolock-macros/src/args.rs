//! The grammar of the attribute's arguments, `key = value, …`: every syntax error is reported, and the values are
//! not validated yet.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Expr, ExprLit, Ident, Lit, LitBool, LitInt, LitStr, Path, Token, bracketed, token};

use crate::error::{Errors, argument};
use crate::format_call;
use crate::key::Key;
use crate::string_literal::StringLiteral;

/// The arguments as written.
#[derive(Default)]
pub(crate) struct Args {
    /// The valid keys that were written, also those whose value could not be read.
    given: Vec<Key>,
    /// The keys that a misspelt key or a value without a key probably means.
    presumed: Vec<Key>,
    /// The arguments whose value is a string literal, each with its key as written.
    literals: Vec<(Key, Ident, StringLiteral)>,
    /// The value of `name` if it is an expression and not a string literal.
    pub(crate) name: Option<Expr>,
    /// The elements of `name`, if its value is a list; those that could be read.
    pub(crate) name_list: Option<Vec<ListedName>>,
    /// The function that `on_busy` names.
    pub(crate) on_busy: Option<Path>,
    /// The key of `once = true`, as written.
    pub(crate) once: Option<Ident>,
    /// The key of `permits`, as written, and its value.
    pub(crate) permits: Option<(Ident, LitInt)>,
    pub(crate) provider: Option<Expr>,
    pub(crate) crate_path: Option<Path>,
}

/// An element of a list of names.
pub(crate) enum ListedName {
    Template(StringLiteral),
    /// A value whose type declares the name.
    Value(Expr),
}

impl Args {
    /// Reads all of `tokens`; an argument that cannot be read is reported and skipped.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let read = |input: ParseStream<'_>| {
            while !input.is_empty() {
                args.argument(input, errors)?;
            }
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            errors.add(error);
        }
        args
    }

    /// Whether the argument was written, correctly or not: a misspelt argument is not reported as missing as well.
    pub(crate) fn mentions(&self, key: Key) -> bool {
        self.given.contains(&key) || self.presumed.contains(&key)
    }

    /// The key as written and the string literal of an argument.
    pub(crate) fn literal(&self, key: Key) -> Option<(&Ident, &StringLiteral)> {
        self.literals
            .iter()
            .find(|(given, ..)| *given == key)
            .map(|(_, ident, literal)| (ident, literal))
    }

    /// The one of two string literals that comes later in the attribute.
    pub(crate) fn later_literal(&self, one: Key, other: Key) -> Option<&StringLiteral> {
        self.literals
            .iter()
            .rev()
            .find(|(given, ..)| [one, other].contains(given))
            .map(|(.., literal)| literal)
    }

    /// Reads one argument with the comma after it.
    fn argument(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        Self::attributes(input, errors)?;
        let Some((ident, key)) = self.key(input, errors)? else {
            return skip(input).map(drop);
        };
        if self.given.contains(&key) {
            errors.push(ident.span(), argument::repeated(key));
            return skip(input).map(drop);
        }
        self.given.push(key);
        if input.peek(Token![:]) && !input.peek(Token![::]) {
            let colon = input.parse::<Token![:]>()?;
            errors.push(colon.span, argument::colon(key, &skip(input)?.to_string()));
            return Ok(());
        }
        if input.parse::<Option<Token![=]>>()?.is_none() || is_end(input) {
            errors.push(ident.span(), argument::no_value(key));
            return skip(input).map(drop);
        }
        match key {
            Key::Once => self.once(ident, input, errors)?,
            Key::Permits => self.permits(ident, input, errors)?,
            Key::Provider => self.provider(input, errors)?,
            Key::Crate => self.crate_path(input, errors)?,
            Key::Name if input.peek(token::Bracket) => self.names(input, errors)?,
            Key::Name if self.lock_name(input)? => {}
            Key::OnBusy if is_path(input) => self.on_busy = Some(input.call(Path::parse_mod_style)?),
            Key::Name
            | Key::Duration(_)
            | Key::AcquireTimeout
            | Key::OnBusy
            | Key::OnLost
            | Key::Release
            | Key::Escape => self.string(ident, key, input, errors)?,
        }
        end(input, errors)
    }

    /// Skips attributes before an argument, which are reported.
    fn attributes(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        for attribute in input.call(Attribute::parse_outer)? {
            errors.push_spanned(attribute, argument::attribute());
        }
        Ok(())
    }

    /// Reads the key of an argument; a value without a key and an unknown key are reported.
    fn key(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<(Ident, Key)>> {
        if !input.peek(Ident::peek_any) {
            let alone = input
                .fork()
                .parse::<LitStr>()
                .ok()
                .filter(|_| !self.mentions(Key::Name));
            match &alone {
                Some(literal) => errors.push(
                    literal.span(),
                    argument::literal_alone(&literal.token().to_string()),
                ),
                None => errors.push(input.span(), argument::not_an_argument()),
            }
            self.presumed.extend(alone.map(|_| Key::Name));
            return Ok(None);
        }
        let ident = input.call(Ident::parse_any)?;
        let word = ident.to_string();
        if let Some(key) = Key::find(&word) {
            return Ok(Some((ident, key)));
        }
        let choice = Key::with_choice(&word).filter(|_| is_end(input) || is_true(input));
        match choice {
            Some(key) => errors.push(ident.span(), argument::value_alone(key, &word)),
            None => errors.push(ident.span(), argument::unknown(&word)),
        }
        self.presumed.extend(choice.or_else(|| Key::meant(&word)));
        Ok(None)
    }

    /// Reads the value of an argument that takes a string literal.
    fn string(
        &mut self,
        key_ident: Ident,
        key: Key,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        let ahead = input.fork();
        if let Ok(literal) = ahead.parse::<LitStr>()
            && (is_end(&ahead) || is_next_argument(&ahead))
        {
            input.parse::<LitStr>()?;
            match literal.suffix() {
                "" => self.literals.push((key, key_ident, StringLiteral::new(&literal))),
                suffix => errors.push(literal.span(), argument::suffixed(key, suffix)),
            }
            return Ok(());
        }
        let value = skip_value(input)?;
        let write = match key {
            Key::Name => format_call::template(&value).map(|template| format!("name = {template:?}")),
            _ => with_quotes(key, &value),
        };
        errors.push_spanned(value, argument::not_a_string(key, write));
        Ok(())
    }

    /// Reads the value of `name` if it has the form of a lock name that is declared elsewhere.
    fn lock_name(&mut self, input: ParseStream<'_>) -> syn::Result<bool> {
        let ahead = input.fork();
        let is_lock_name = ahead.parse::<Expr>().is_ok_and(|expr| is_lock_name(&expr))
            && (is_end(&ahead) || is_next_argument(&ahead));
        if is_lock_name {
            self.name = Some(input.parse()?);
        }
        Ok(is_lock_name)
    }

    /// Reads the list of names of `name`; an element that is not a name is reported and skipped.
    fn names(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let list;
        let bracket = bracketed!(list in input);
        let mut names = Vec::new();
        if list.is_empty() {
            errors.push(bracket.span.join(), argument::empty_list());
        }
        while !list.is_empty() {
            let (text, value) = (list.fork(), list.fork());
            if text.parse::<LitStr>().is_ok() && is_end(&text) {
                let literal = list.parse::<LitStr>()?;
                match literal.suffix() {
                    "" => names.push(ListedName::Template(StringLiteral::new(&literal))),
                    suffix => errors.push(literal.span(), argument::suffixed(Key::Name, suffix)),
                }
            } else if value.parse::<Expr>().is_ok_and(|expr| is_lock_name(&expr)) && is_end(&value) {
                names.push(ListedName::Value(list.parse()?));
            } else {
                errors.push_spanned(skip_value(&list)?, argument::not_a_name_in_list());
            }
            list.parse::<Option<Token![,]>>()?;
        }
        self.name_list = Some(names);
        Ok(())
    }

    /// Reads the value of `once`, which can only be `true`.
    fn once(&mut self, key: Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let ahead = input.fork();
        if ahead.parse::<LitBool>().is_ok_and(|literal| literal.value) {
            input.parse::<LitBool>()?;
            self.once = Some(key);
        } else {
            errors.push_spanned(skip_value(input)?, argument::not_true());
        }
        Ok(())
    }

    /// Reads the value of `permits`, an integer without a suffix.
    fn permits(&mut self, key: Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let ahead = input.fork();
        let is_number = ahead
            .parse::<LitInt>()
            .is_ok_and(|literal| literal.suffix().is_empty());
        if is_number && (is_end(&ahead) || is_next_argument(&ahead)) {
            self.permits = Some((key, input.parse()?));
        } else {
            errors.push_spanned(skip_value(input)?, argument::not_a_number());
        }
        Ok(())
    }

    /// Reads the value of `provider`.
    fn provider(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let ahead = input.fork();
        if ahead
            .parse::<Expr>()
            .is_ok_and(|expr| !matches!(expr, Expr::Assign(_)))
        {
            self.provider = Some(input.parse()?);
        } else {
            errors.push_spanned(skip_value(input)?, argument::not_an_expression());
        }
        Ok(())
    }

    /// Reads the value of `crate`.
    fn crate_path(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let ahead = input.fork();
        if ahead.call(Path::parse_mod_style).is_ok() && (is_end(&ahead) || is_next_argument(&ahead)) {
            self.crate_path = Some(input.call(Path::parse_mod_style)?);
            return Ok(());
        }
        let value = skip_value(input)?;
        let quoted = syn::parse2::<LitStr>(value.clone()).ok();
        let path = quoted.and_then(|literal| {
            literal
                .parse_with(Path::parse_mod_style)
                .ok()
                .map(|_| literal.value())
        });
        errors.push_spanned(
            value,
            argument::not_a_path(path.map(|path| format!("crate = {path}"))),
        );
        Ok(())
    }
}

/// Whether an expression can be a lock name: a path such as `Lock::Nightly`, or a struct or a tuple variant with its
/// fields. Any other call gives the name as text, which is not accepted.
fn is_lock_name(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Struct(_) => true,
        Expr::Group(group) => is_lock_name(&group.expr),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.last().is_some_and(|last| {
                let name = last.ident.unraw().to_string();
                name.starts_with(char::is_uppercase)
            }),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the argument ends here.
fn is_end(input: ParseStream<'_>) -> bool {
    input.is_empty() || input.peek(Token![,])
}

/// Whether the value is the path of a function, and not one of the words that need quotes.
fn is_path(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let path = ahead.call(Path::parse_mod_style);
    let word = |path: &Path| path.get_ident().map(|word| word.to_string().to_lowercase());
    path.is_ok_and(|path| !word(&path).is_some_and(|word| Key::OnBusy.choices().contains(&word.as_str())))
        && (is_end(&ahead) || is_next_argument(&ahead))
}

/// Whether the value is `true`, as in `skip = true`.
fn is_true(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let equals = ahead.parse::<Token![=]>().is_ok();
    equals && ahead.parse::<LitBool>().is_ok_and(|value| value.value) && is_end(&ahead)
}

/// Whether another argument starts here, which means that a comma is missing.
fn is_next_argument(input: ParseStream<'_>) -> bool {
    input.peek(Ident::peek_any) && input.peek2(Token![=])
}

/// Reads the comma after an argument.
fn end(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
    if !is_end(input) {
        errors.push(input.span(), argument::no_comma());
        if is_next_argument(input) {
            return Ok(());
        }
    }
    skip(input).map(drop)
}

/// Skips the rest of an argument, without its comma, and returns it.
fn skip_value(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !is_end(input) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

/// Skips the rest of an argument with its comma, and returns it without the comma.
fn skip(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let rest = skip_value(input)?;
    input.parse::<Option<Token![,]>>()?;
    Ok(rest)
}

/// The argument with its value in quotes, such as `expiry = "30s"` for `30`, if that makes it valid.
fn with_quotes(key: Key, value: &TokenStream) -> Option<String> {
    let mut tokens = value.clone().into_iter();
    let word = match (tokens.next()?, tokens.next()) {
        (TokenTree::Ident(_), Some(_)) => constructed_duration(value)?,
        (TokenTree::Ident(word), None) if key != Key::Name => word.to_string().to_lowercase(),
        (TokenTree::Literal(literal), None) => match Lit::new(literal) {
            Lit::Int(number) if number.suffix().is_empty() => format!("{}s", number.base10_digits()),
            Lit::Int(number) => number.to_string(),
            _ => return None,
        },
        _ => return None,
    };
    let known = match key {
        Key::OnBusy | Key::OnLost | Key::Release | Key::Escape => key.choices().contains(&word.as_str()),
        Key::AcquireTimeout if word == "none" => true,
        Key::AcquireTimeout | Key::Duration(_) => crate::duration::parse(&word).is_ok(),
        Key::Name | Key::Once | Key::Permits | Key::Provider | Key::Crate => false,
    };
    known.then(|| format!("{} = \"{word}\"", key.as_str()))
}

/// The duration that a constructor such as `Duration::from_secs(90)` stands for.
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

#[cfg(test)]
mod tests;

//! The grammar of the attribute's arguments, `key = value, …`: every syntax error is reported, and the values are
//! not validated yet.

mod names;
mod suggestion;
mod value;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Expr, ExprClosure, ExprPath, Ident, LitBool, LitInt, LitStr, Path, Token, token};

pub(crate) use self::names::ListedName;
use self::value::{is_end, is_next_argument, is_parenthesised, skip, skip_value, whole};
use crate::error::{Errors, argument};
use crate::key::{Arg, DurationKey};
use crate::string_literal::StringLiteral;

/// The arguments as written.
#[derive(Default)]
pub(crate) struct Args {
    /// The valid keys that were written, also those whose value could not be read.
    given: Vec<Arg>,
    /// The keys that a misspelt key or a value without a key probably means.
    presumed: Vec<Arg>,
    /// The arguments whose value is a string literal, each with its key as written.
    literals: Vec<(Arg, Ident, StringLiteral)>,
    /// The value of `name` if it is an expression and not a string literal.
    pub(crate) name: Option<Expr>,
    /// The elements of `name`, if its value is a list; those that could be read.
    pub(crate) name_list: Option<Vec<ListedName>>,
    /// The function that `on_busy` names.
    pub(crate) on_busy: Option<ExprPath>,
    /// The key of `once = true`, as written.
    pub(crate) once: Option<Ident>,
    /// The key of `once_at`, as written, and its value.
    pub(crate) once_at: Option<(Ident, Expr)>,
    /// The key of `permits`, as written, and its value.
    pub(crate) permits: Option<(Ident, LitInt)>,
    pub(crate) provider: Option<Expr>,
    pub(crate) crate_path: Option<Path>,
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
    pub(crate) fn mentions(&self, key: Arg) -> bool {
        self.given.contains(&key) || self.presumed.contains(&key)
    }

    /// The keys, as written, of the arguments that let the work succeed only once.
    pub(crate) fn once_keys(&self) -> impl Iterator<Item = &Ident> {
        let once_at = self.once_at.as_ref().map(|(key, _)| key);
        let once_per = self.literal(Arg::Duration(DurationKey::OncePer));
        let once_per = once_per.map(|(key, _)| key);
        self.once.iter().chain(once_at).chain(once_per)
    }

    /// The key as written and the string literal of an argument.
    pub(crate) fn literal(&self, key: Arg) -> Option<(&Ident, &StringLiteral)> {
        let mut literals = self.literals.iter();
        let found = literals.find(|(given, ..)| *given == key);
        found.map(|(_, ident, literal)| (ident, literal))
    }

    /// The one of two string literals that comes later in the attribute.
    pub(crate) fn later_literal(&self, one: Arg, other: Arg) -> Option<&StringLiteral> {
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
        if input.peek(token::Paren) || (input.peek(Token![:]) && !input.peek(Token![::])) {
            return no_equals(key, input, errors);
        }
        if input.parse::<Option<Token![=]>>()?.is_none() || is_end(input) {
            errors.push(ident.span(), argument::no_value(key));
            return skip(input).map(drop);
        }
        if !matches!(key, Arg::Provider | Arg::OnceAt) && is_parenthesised(input) {
            let value = skip(input)?;
            let write = suggestion::assignment(key, &value);
            errors.push_spanned(value, argument::parenthesised(key, &write));
            return Ok(());
        }
        match key {
            Arg::Once => self.once(ident, input, errors)?,
            Arg::Permits => self.permits(ident, input, errors)?,
            Arg::OnceAt => self.once_at = expression(key, input, errors)?.map(|tick| (ident, tick)),
            Arg::Provider => self.provider = expression(key, input, errors)?,
            Arg::Crate => self.crate_path(input, errors)?,
            Arg::Name if input.peek(token::Bracket) => self.name_list = Some(names::list(input, errors)?),
            Arg::Name if self.lock_name(input) => {}
            Arg::OnBusy if self.busy_function(input) => {}
            Arg::Name | Arg::Duration(_) | Arg::AcquireTimeout | Arg::OnBusy | Arg::OnLost | Arg::Release => {
                self.string(ident, key, input, errors)?;
            }
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
    fn key(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<(Ident, Arg)>> {
        if !self.mentions(Arg::Name) && names::is_alone(&input.fork()) {
            let name = skip_value(input)?;
            let message = argument::name_alone(suggestion::without_parentheses(name.clone()));
            errors.push_spanned(name, message);
            self.presumed.push(Arg::Name);
            return Ok(None);
        }
        if !input.peek(Ident::peek_any) {
            errors.push(input.span(), argument::not_an_argument());
            return Ok(None);
        }
        let ident = input.call(Ident::parse_any)?;
        let word = ident.to_string();
        if let Some(key) = Arg::find(&word) {
            return Ok(Some((ident, key)));
        }
        let choice = Arg::with_choice(&word).filter(|_| is_end(input) || is_true(input));
        match choice {
            Some(key) => errors.push(ident.span(), argument::value_alone(key, &word)),
            None => errors.push(ident.span(), argument::unknown(&word)),
        }
        self.presumed.extend(choice.or_else(|| Arg::meant(&word)));
        Ok(None)
    }

    /// Reads the value of an argument that takes a string literal.
    fn string(
        &mut self,
        key_ident: Ident,
        key: Arg,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        if let Some(literal) = whole::<LitStr>(input, |_| true) {
            match literal.suffix() {
                "" => self.literals.push((key, key_ident, StringLiteral::new(&literal))),
                suffix => errors.push(literal.span(), argument::suffixed(key, suffix)),
            }
            return Ok(());
        }
        let value = skip_value(input)?;
        let message = match suggestion::instead(key, &value) {
            None if key == Arg::OnBusy && syn::parse2::<ExprClosure>(value.clone()).is_ok() => {
                argument::closure().to_owned()
            }
            write => argument::not_a_string(key, write, suggestion::constant(&value).as_deref()),
        };
        errors.push_spanned(value, message);
        Ok(())
    }

    /// Reads the value of `name` if it has the form of a lock name that is declared elsewhere.
    fn lock_name(&mut self, input: ParseStream<'_>) -> bool {
        self.name = whole(input, names::is_declared);
        self.name.is_some()
    }

    /// Reads the value of `on_busy` if it is the path of a function, and not one of the words that need quotes.
    fn busy_function(&mut self, input: ParseStream<'_>) -> bool {
        self.on_busy = whole(input, |path: &ExprPath| {
            let word = path.path.get_ident().map(|word| word.to_string().to_lowercase());
            !word.is_some_and(|word| Arg::OnBusy.choices().contains(&word.as_str()))
        });
        self.on_busy.is_some()
    }

    /// Reads the value of `once`, which can only be `true`.
    fn once(&mut self, key: Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        match whole(input, |literal: &LitBool| literal.value) {
            Some(_) => self.once = Some(key),
            None => errors.push_spanned(skip_value(input)?, argument::not_true()),
        }
        Ok(())
    }

    /// Reads the value of `permits`, an integer without a suffix.
    fn permits(&mut self, key: Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if let Some(number) = whole(input, |number: &LitInt| number.suffix().is_empty()) {
            self.permits = Some((key, number));
            return Ok(());
        }
        let value = skip_value(input)?;
        let constant = suggestion::constant(&value);
        let message = argument::not_a_number(suggestion::number(&value).as_deref(), constant.as_deref());
        errors.push_spanned(value, message);
        Ok(())
    }

    /// Reads the value of `crate`.
    fn crate_path(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let is_plain = |path: &Path| path.segments.iter().all(|segment| segment.arguments.is_none());
        if let Some(path) = whole(input, is_plain) {
            self.crate_path = Some(path);
            return Ok(());
        }
        let value = skip_value(input)?;
        let quoted = syn::parse2::<LitStr>(value.clone()).ok();
        let path = quoted.filter(|quoted| quoted.parse_with(Path::parse_mod_style).is_ok());
        let write = path.map(|path| format!("crate = {}", path.value()));
        errors.push_spanned(value, argument::not_a_path(write));
        Ok(())
    }
}

/// Reads a value that is an expression.
fn expression(key: Arg, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<Expr>> {
    let ahead = input.fork().parse::<Expr>();
    if ahead.is_ok_and(|value| !matches!(value, Expr::Assign(_))) {
        return input.parse().map(Some);
    }
    errors.push_spanned(skip_value(input)?, argument::not_an_expression(key));
    Ok(None)
}

/// Whether the value is `true`, as in `skip = true`.
fn is_true(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let equals = ahead.parse::<Token![=]>().is_ok();
    equals && ahead.parse::<LitBool>().is_ok_and(|value| value.value) && is_end(&ahead)
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

/// Reports an argument whose value follows a colon or is in parentheses, as in `expiry("30s")`, and skips it.
fn no_equals(key: Arg, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
    let place = input.fork().parse::<TokenTree>()?;
    input.parse::<Option<Token![:]>>()?;
    let write = suggestion::assignment(key, &skip(input)?);
    errors.push(place.span(), argument::no_equals(key, &write));
    Ok(())
}

#[cfg(test)]
mod tests;

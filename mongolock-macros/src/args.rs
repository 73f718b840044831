//! The grammar of the attribute's arguments: `key = value, …`, everything wrong reported, nothing judged yet.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Ident, Lit, LitStr, Path, Token};

use crate::error::{Errors, option};
use crate::key::Key;
use crate::text::Text;

/// What was written, argument by argument.
#[derive(Default)]
pub(crate) struct Args {
    given: Vec<Key>,
    /// Keys that a misspelt one or a bare value probably stands for.
    meant: Vec<Key>,
    texts: Vec<(Key, Ident, Text)>,
    pub(crate) provider: Option<Expr>,
    pub(crate) crate_path: Option<Path>,
}

impl Args {
    /// Reads all of `tokens`; what cannot be read is reported and passed over.
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

    /// Whether the argument was attempted, even without success: one mistake, one message.
    pub(crate) fn gives(&self, key: Key) -> bool {
        self.given.contains(&key) || self.meant.contains(&key)
    }

    /// The key as written and the text of an argument.
    pub(crate) fn text(&self, key: Key) -> Option<(&Ident, &Text)> {
        self.texts
            .iter()
            .find(|(given, ..)| *given == key)
            .map(|(_, ident, text)| (ident, text))
    }

    /// The later one of two texts, as they stand in the attribute.
    pub(crate) fn later(&self, one: Key, other: Key) -> Option<&Text> {
        self.texts
            .iter()
            .rev()
            .find(|(given, ..)| [one, other].contains(given))
            .map(|(.., text)| text)
    }

    fn argument(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let Some((ident, key)) = self.key(input, errors)? else {
            return skip(input).map(drop);
        };
        if self.given.contains(&key) {
            errors.push(ident.span(), option::repeated(key));
            return skip(input).map(drop);
        }
        self.given.push(key);
        if input.parse::<Option<Token![=]>>()?.is_none() || is_end(input) {
            errors.push(ident.span(), option::no_value(key));
            return skip(input).map(drop);
        }
        match key {
            Key::Provider => self.provider(input, errors)?,
            Key::Crate => self.crate_path(input, errors)?,
            Key::Name | Key::Duration(_) | Key::AcquireTimeout | Key::OnBusy | Key::OnLost => {
                self.string(ident, key, input, errors)?;
            }
        }
        end(input, errors)
    }

    fn key(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<(Ident, Key)>> {
        if !input.peek(Ident::peek_any) {
            let alone = input
                .fork()
                .parse::<LitStr>()
                .ok()
                .filter(|_| !self.gives(Key::Name));
            match &alone {
                Some(literal) => errors.push(
                    literal.span(),
                    option::literal_alone(&literal.token().to_string()),
                ),
                None => errors.push(input.span(), option::not_an_argument()),
            }
            self.meant.extend(alone.map(|_| Key::Name));
            return Ok(None);
        }
        let ident = input.call(Ident::parse_any)?;
        let word = ident.to_string();
        if let Some(key) = Key::find(&word) {
            return Ok(Some((ident, key)));
        }
        match Key::with_choice(&word).filter(|_| is_end(input)) {
            Some(key) => errors.push(ident.span(), option::value_alone(key, &word)),
            None => errors.push(ident.span(), option::unknown(&word)),
        }
        self.meant.extend(Key::nearest(&word));
        Ok(None)
    }

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
                "" => self.texts.push((key, key_ident, Text::new(&literal))),
                suffix => errors.push(literal.span(), option::suffixed(key, suffix)),
            }
            return Ok(());
        }
        let value = skip_value(input)?;
        let write = string_form(key, &value);
        errors.push_over(value, option::not_a_string(key, write));
        Ok(())
    }

    fn provider(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let ahead = input.fork();
        if ahead
            .parse::<Expr>()
            .is_ok_and(|expr| !matches!(expr, Expr::Assign(_)))
        {
            self.provider = Some(input.parse()?);
        } else {
            errors.push_over(skip_value(input)?, option::not_an_expression());
        }
        Ok(())
    }

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
        errors.push_over(
            value,
            option::not_a_path(path.map(|path| format!("crate = {path}"))),
        );
        Ok(())
    }
}

fn is_end(input: ParseStream<'_>) -> bool {
    input.is_empty() || input.peek(Token![,])
}

fn is_next_argument(input: ParseStream<'_>) -> bool {
    input.peek(Ident::peek_any) && input.peek2(Token![=])
}

/// The comma after an argument.
fn end(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
    if !is_end(input) {
        errors.push(input.span(), option::no_comma());
        if is_next_argument(input) {
            return Ok(());
        }
    }
    skip(input).map(drop)
}

/// The rest of an argument that cannot be read, without its comma.
fn skip_value(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !is_end(input) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

fn skip(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let rest = skip_value(input)?;
    input.parse::<Option<Token![,]>>()?;
    Ok(rest)
}

/// `30` and `skip` as they should have been written, if the quotes are all that is missing.
fn string_form(key: Key, value: &TokenStream) -> Option<String> {
    let mut tokens = value.clone().into_iter();
    let word = match (tokens.next()?, tokens.next()) {
        (TokenTree::Ident(word), None) if key != Key::Name => word.to_string().to_lowercase(),
        (TokenTree::Literal(literal), None) => match Lit::new(literal) {
            Lit::Int(number) if number.suffix().is_empty() => format!("{}s", number.base10_digits()),
            Lit::Int(number) => number.to_string(),
            _ => return None,
        },
        _ => return None,
    };
    let known = match key {
        Key::OnBusy | Key::OnLost => key.choices().contains(&word.as_str()),
        Key::AcquireTimeout if word == "none" => true,
        Key::AcquireTimeout | Key::Duration(_) => crate::duration::parse(&word).is_ok(),
        Key::Name | Key::Provider | Key::Crate => false,
    };
    known.then(|| format!("{} = \"{word}\"", key.as_str()))
}

#[cfg(test)]
mod tests;

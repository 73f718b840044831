//! The annotated type: its variants, their fields and their templates.

use proc_macro2::{Ident, Span, TokenStream};
use syn::parse::ParseStream;
use syn::{Attribute, Fields, Generics, Item, LitStr, Path, Token};

use crate::error::{Errors, lock_name};
use crate::string_literal::StringLiteral;

/// An enum, or a struct as a type with one variant.
pub(crate) struct Declaration {
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    pub(crate) variants: Vec<Variant>,
    /// The path of the runtime crate; `::mongolock` if it is omitted.
    pub(crate) crate_path: Option<Path>,
}

/// A variant of an enum, or the whole struct.
pub(crate) struct Variant {
    /// The name of the variant; none of a struct.
    pub(crate) ident: Option<Ident>,
    pub(crate) fields: Fields,
    pub(crate) template: StringLiteral,
}

/// The content of all `#[lock(…)]` of one item.
#[derive(Default)]
struct Attributes {
    template: Option<LitStr>,
    crate_path: Option<Path>,
    /// Whether an attribute could not be read, so that its template is not missing.
    has_mistake: bool,
}

impl Declaration {
    /// Parses the annotated item; `None` if it is not a type with variants.
    pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Self> {
        let item = syn::parse2(item).map_err(|error| errors.add(error)).ok()?;
        match item {
            Item::Struct(item) => {
                let attributes = Attributes::read(&item.attrs, errors);
                refuse_on_fields(&item.fields, errors);
                let variant = attributes.variant(None, item.ident.span(), &item.fields, errors);
                Some(Self {
                    ident: item.ident,
                    generics: item.generics,
                    variants: variant.into_iter().collect(),
                    crate_path: attributes.crate_path,
                })
            }
            Item::Enum(item) => {
                let attributes = Attributes::read(&item.attrs, errors);
                if let Some(template) = &attributes.template {
                    errors.push(template.span(), lock_name::template_of_an_enum());
                }
                if item.variants.is_empty() {
                    errors.push(item.ident.span(), lock_name::no_variants(&item.ident.to_string()));
                }
                let variants = item.variants.into_iter().filter_map(|variant| {
                    let attributes = Attributes::read(&variant.attrs, errors);
                    if let Some(path) = &attributes.crate_path {
                        errors.push_spanned(path, lock_name::crate_of_a_variant());
                    }
                    refuse_on_fields(&variant.fields, errors);
                    let span = variant.ident.span();
                    attributes.variant(Some(variant.ident), span, &variant.fields, errors)
                });
                Some(Self {
                    variants: variants.collect(),
                    ident: item.ident,
                    generics: item.generics,
                    crate_path: attributes.crate_path,
                })
            }
            Item::Union(item) => {
                errors.push(item.union_token.span, lock_name::a_union());
                None
            }
            other => {
                errors.push_spanned(other, lock_name::a_union());
                None
            }
        }
    }
}

impl Attributes {
    fn read(attributes: &[Attribute], errors: &mut Errors) -> Self {
        let mut read = Self::default();
        for attribute in attributes.iter().filter(|attribute| is_lock(attribute)) {
            if let Err(error) =
                attribute.parse_args_with(|input: ParseStream<'_>| read.arguments(input, errors))
            {
                read.has_mistake = true;
                errors.add(syn::Error::new(error.span(), lock_name::not_a_template()));
            }
        }
        read
    }

    /// Reads `"…"` and `crate = path`, with a comma between them.
    fn arguments(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        loop {
            if input.peek(Token![crate]) && input.peek2(Token![=]) {
                input.parse::<Token![crate]>()?;
                input.parse::<Token![=]>()?;
                self.crate_path = Some(input.call(Path::parse_mod_style)?);
            } else {
                let template: LitStr = input.parse()?;
                match template.suffix() {
                    "" if self.template.is_none() => self.template = Some(template),
                    "" => errors.push(template.span(), lock_name::second_template()),
                    _ => return Err(syn::Error::new(template.span(), "")),
                }
            }
            if input.is_empty() {
                return Ok(());
            }
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                return Ok(());
            }
        }
    }

    /// The variant with its template; a missing one is reported.
    fn variant(
        &self,
        ident: Option<Ident>,
        span: Span,
        fields: &Fields,
        errors: &mut Errors,
    ) -> Option<Variant> {
        if self.template.is_none() && !self.has_mistake {
            let what = ident.as_ref().map(ToString::to_string);
            errors.push(span, lock_name::missing(what.as_deref()));
        }
        Some(Variant {
            ident,
            fields: fields.clone(),
            template: StringLiteral::new(self.template.as_ref()?),
        })
    }
}

fn is_lock(attribute: &Attribute) -> bool {
    attribute.path().is_ident("lock")
}

/// Reports every `#[lock]` on a field.
fn refuse_on_fields(fields: &Fields, errors: &mut Errors) {
    for attribute in fields.iter().flat_map(|field| &field.attrs) {
        if is_lock(attribute) {
            errors.push_spanned(attribute, lock_name::on_a_field());
        }
    }
}

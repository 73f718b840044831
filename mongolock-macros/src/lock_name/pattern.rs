//! The template of one variant, with its placeholders resolved to the fields.

use proc_macro2::{Ident, Span};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{Field, Type};

use super::declaration::{Declaration, Variant};
use super::language::{Hole, Values};
use crate::bind::{self, BoundValue, Part};
use crate::error::Errors;
use crate::error::lock_name::{self, FieldMistake};
use crate::string_literal::StringLiteral;
use crate::template::{self, Piece, Placeholder, Root};

/// A template that can be expanded, and whose names can be compared with those of other templates.
pub(crate) struct Pattern<'a> {
    pub(crate) variant: &'a Variant,
    pub(crate) template: &'a StringLiteral,
    /// What the generated code appends to the name.
    pub(crate) parts: Vec<Part>,
    /// The same parts as the sets of texts that they can give.
    pub(crate) language: Vec<Segment>,
    /// The fields that the template names: the position of each in its variant, and the variable that it is bound to.
    pub(crate) bindings: Vec<(usize, Ident)>,
    /// The types that are taken for primitive integers.
    pub(crate) integers: Vec<(Values, Ident)>,
}

/// One part of a template as the texts that it can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Text(String),
    Hole(Hole),
}

impl<'a> Pattern<'a> {
    /// Resolves the placeholders of a variant; every mistake is reported.
    pub(crate) fn bind(variant: &'a Variant, declaration: &Declaration, errors: &mut Errors) -> Option<Self> {
        let template = &variant.template;
        let (pieces, mut mistakes) = template::parse(template.value());
        mistakes.extend(template::ambiguous_separators(template.value(), &pieces));
        let is_valid = mistakes.is_empty();
        for (range, mistake) in mistakes {
            errors.push(template.span_of(range), FieldMistake(mistake));
        }
        let mut pattern = Self {
            variant,
            template,
            parts: Vec::new(),
            language: Vec::new(),
            bindings: Vec::new(),
            integers: Vec::new(),
        };
        let mut is_bound = true;
        for (at, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => {
                    pattern.parts.push(Part::Text(text.clone()));
                    pattern.language.push(Segment::Text(text.clone()));
                }
                Piece::Placeholder(placeholder) => {
                    let separator = template::separator(&pieces, at);
                    is_bound &= pattern
                        .placeholder(placeholder, separator, declaration)
                        .map_err(|message| {
                            errors.push(template.span_of(placeholder.range.clone()), message);
                        })
                        .is_ok();
                }
            }
        }
        (is_valid && is_bound).then_some(pattern)
    }

    /// Adds a placeholder.
    fn placeholder(
        &mut self,
        placeholder: &Placeholder,
        separator: Option<char>,
        declaration: &Declaration,
    ) -> Result<(), String> {
        let written = self.template.value()[placeholder.range.clone()].to_owned();
        let span = self.template.span_of(placeholder.range.clone());
        let is_bare = placeholder.steps.is_empty();
        let mut values = Values::Any;
        let root = match &placeholder.root {
            Root::Constant { of, name } => bind::associated_constant(of, name, span),
            root => {
                if let Some(at) = self.field(root) {
                    if is_bare && let Some(integer) = integer(nth(self.variant, at)) {
                        values = Values::of_integer(&integer.to_string());
                        self.integers.push((values, integer));
                    }
                    let binding = self.bound(at);
                    let binding = Ident::new(&binding.to_string(), Span::mixed_site().located_at(span));
                    // A bare binding is a reference already, and the messages of the compiler name the type behind it.
                    if is_bare {
                        quote!(*#binding)
                    } else {
                        quote!(#binding)
                    }
                } else if let Root::Name(name) = root
                    && let Some(parameter) = const_parameter(declaration, name)
                {
                    let mut parameter = parameter.clone();
                    parameter.set_span(span.resolved_at(parameter.span()));
                    parameter.into_token_stream()
                } else {
                    return Err(self.not_found(&written, root));
                }
            }
        };
        let hole = Hole {
            written: written.clone(),
            values,
            separator,
        };
        self.language.push(Segment::Hole(hole));
        self.parts.push(Part::Value(BoundValue {
            written,
            root,
            steps: placeholder.steps.clone(),
            separator,
            span,
        }));
        Ok(())
    }

    /// The position of the field that a placeholder begins with.
    fn field(&self, root: &Root) -> Option<usize> {
        self.variant
            .fields
            .iter()
            .enumerate()
            .find_map(|(at, field)| is_root(root, at, field).then_some(at))
    }

    /// The variable that a field is bound to.
    fn bound(&mut self, at: usize) -> Ident {
        if let Some((_, binding)) = self.bindings.iter().find(|(bound, _)| *bound == at) {
            return binding.clone();
        }
        let binding = format_ident!("field_{at}", span = Span::mixed_site());
        self.bindings.push((at, binding.clone()));
        binding
    }

    /// The message about a placeholder that names no field.
    fn not_found(&self, written: &str, root: &Root) -> String {
        let variant = self.variant.ident.as_ref().map(ToString::to_string);
        let names = self.variant.fields.iter().enumerate().map(|(at, field)| {
            let name = field.ident.as_ref().map(|name| name.unraw().to_string());
            name.unwrap_or_else(|| at.to_string())
        });
        let root = match root {
            Root::Name(name) => name.clone(),
            Root::Index(at) => at.to_string(),
            Root::Constant { of, name } => format!("{of}::{name}"),
        };
        lock_name::no_field(variant.as_deref(), written, &root, &names.collect::<Vec<_>>())
    }
}

/// Whether the placeholder begins with this field.
fn is_root(root: &Root, at: usize, field: &Field) -> bool {
    match (root, &field.ident) {
        (Root::Name(name), Some(ident)) => ident.unraw() == name,
        (Root::Index(index), None) => usize::try_from(*index) == Ok(at),
        _ => false,
    }
}

/// The type of the field at this position.
fn nth(variant: &Variant, at: usize) -> Option<&Type> {
    variant.fields.iter().nth(at).map(|field| &field.ty)
}

/// The word that a type consists of, if it is the name of a primitive integer. References are removed, because they
/// render as what they refer to, and so are the invisible groups of `macro_rules!`.
fn integer(ty: Option<&Type>) -> Option<Ident> {
    match ty? {
        Type::Group(group) => integer(Some(&group.elem)),
        Type::Paren(paren) => integer(Some(&paren.elem)),
        Type::Reference(reference) => integer(Some(&reference.elem)),
        Type::Path(path) => {
            let word = path.path.get_ident()?;
            (Values::of_integer(&word.to_string()) != Values::Any).then(|| word.clone())
        }
        _ => None,
    }
}

/// The const generic of this name.
fn const_parameter<'a>(declaration: &'a Declaration, name: &str) -> Option<&'a Ident> {
    let mut parameters = declaration.generics.const_params();
    parameters
        .find(|parameter| parameter.ident.unraw() == name)
        .map(|parameter| &parameter.ident)
}

//! Messages about `#[derive(LockName)]`.

use std::fmt;

use crate::error::argument::list;
use crate::similar::nearest;
use crate::template::TemplateMistake;

const EXAMPLE: &str = "`#[lock(\"report:<id>\")]`";

pub(crate) fn a_union() -> &'static str {
    "`LockName` can be derived for enums and structs only"
}

pub(crate) fn no_variants(name: &str) -> String {
    format!("`{name}` has no variants, so it names no lock: add a variant with {EXAMPLE}")
}

/// The message about a variant without a template, or about a struct.
pub(crate) fn missing(variant: Option<&str>) -> String {
    match variant {
        Some(variant) => format!("`{variant}` has no lock name: write {EXAMPLE} above it"),
        None => format!("the struct has no lock name: write {EXAMPLE} above it"),
    }
}

pub(crate) fn not_a_template() -> String {
    format!("`#[lock]` takes the template of a lock name: write {EXAMPLE}")
}

pub(crate) fn second_template() -> &'static str {
    "the lock name is given twice: keep one `#[lock(\"…\")]`"
}

pub(crate) fn template_of_an_enum() -> &'static str {
    "each variant has a lock name of its own: write `#[lock(\"…\")]` above the variants"
}

pub(crate) fn crate_of_a_variant() -> &'static str {
    "`crate` applies to the whole type: write `#[lock(crate = …)]` above the enum"
}

pub(crate) fn on_a_field() -> &'static str {
    "a field has no lock name: write `#[lock(\"…\")]` above the variant or the struct"
}

/// The message about a placeholder, whose first name is `root`, that names none of these fields.
pub(crate) fn no_field(variant: Option<&str>, written: &str, root: &str, fields: &[String]) -> String {
    let what = variant.map_or_else(|| "the struct".to_owned(), |variant| format!("`{variant}`"));
    let fields = fields.iter().map(String::as_str);
    if root == "self" {
        let write = written.replacen("self.", "", 1);
        return format!("`{written}` must begin with a field of {what}: write `{write}`");
    }
    if let Some(near) = nearest(root, fields.clone()) {
        let write = written.replacen(root, near, 1);
        return format!("{what} has no field `{root}`: did you mean `{write}`?");
    }
    match list(fields, "and") {
        none if none.is_empty() => {
            format!("{what} has no field `{root}`: add the field, or remove `{written}`")
        }
        fields => format!("{what} has no field `{root}`: it has {fields}"),
    }
}

/// The message about two templates that both give `name`; without a name, about two that could not be proved disjoint.
pub(crate) fn overlap([one, other]: [&str; 2], name: Option<&str>) -> String {
    let advice = "begin them with different words, such as the kind of what they lock";
    match name {
        Some(name) => format!("`{one}` and `{other}` can both give `{name}`: {advice}"),
        None => format!("the macro cannot prove that `{one}` and `{other}` give different names: {advice}"),
    }
}

pub(crate) fn same_template(template: &str) -> String {
    format!(
        "two variants have the template `{template}`, and so the same locks: use one variant, or change one template"
    )
}

/// The sentence about two beginnings of templates that differ in one letter, after another message.
pub(crate) fn near_miss(one: &str, other: &str) -> String {
    format!("\nnote: `{one}` and `{other}` differ in one character: if they mean the same, one is misspelt")
}

/// A mistake of a template of a type, whose placeholders name fields and not arguments.
pub(crate) struct FieldMistake(pub(crate) TemplateMistake);

impl fmt::Display for FieldMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TemplateMistake::NoPlaceholder => f.write_str(
                "`<>` is an empty placeholder: write a field between the brackets, such as `<id>`",
            ),
            TemplateMistake::Syntax { written, write: None } => write!(
                f,
                "`<{written}>` must name a field, or a field or an argument-less method of a field: \
                 store the value in a field"
            ),
            TemplateMistake::Syntax {
                written,
                write: Some(write),
            } => write!(
                f,
                "`<{written}>` must name a field, or a field or an argument-less method of a field: write `<{write}>`"
            ),
            TemplateMistake::Braced { written, write } => {
                let position = written.trim_matches(['{', '}']);
                let is_position = !position.is_empty() && position.chars().all(|c| c.is_ascii_digit());
                let write = write.as_deref().or(is_position.then_some(position));
                let write = write.map_or_else(
                    || "a field, such as `<id>`".to_owned(),
                    |write| format!("`<{write}>`"),
                );
                write!(
                    f,
                    "`{written}` is not a placeholder, so all values would share one lock: write {write}"
                )
            }
            other => other.fmt(f),
        }
    }
}

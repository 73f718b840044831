//! The proof that two templates do not overlap agrees with what they render.

use std::collections::HashSet;

use super::super::automaton::Automaton;
use super::super::declaration::Declaration;
use super::super::language::escaped;
use super::super::pattern::{Pattern, Segment};
use super::*;
use crate::samples::{each_seed, text};

fn escape(value: &str, separator: char) -> String {
    value.chars().map(|one| escaped(one, Some(separator))).collect()
}

/// A field of each kind whose language differs.
const KINDS: [&str; 3] = ["String", "u64", "i64"];

/// Templates with up to two placeholders of every kind, and text of a small alphabet at every place.
fn small_templates() -> Vec<(String, Vec<&'static str>)> {
    let fixed = ["1", "a:1", "-1", "%2D1-1", "1%3A:1", "%3%3A3"];
    let mut all: Vec<_> = fixed.map(|text| (text.to_owned(), vec![])).into();
    let texts = ["", ":", "1", "-", "a", "%", "3"];
    for (before, after) in pairs(&texts, &texts) {
        all.extend(KINDS.map(|kind| (format!("{before}<a>{after}"), vec![kind])));
    }
    for (before, between) in pairs(&["", "1", "a:"], &[":", "1", "-", "3", ":%"]) {
        for after in ["", "1", ":a"] {
            let template = format!("{before}<a>{between}<b>{after}");
            all.extend(pairs(&KINDS, &KINDS).map(|(one, other)| (template.clone(), vec![one, other])));
        }
    }
    all
}

fn pairs<'a, T: Copy>(ones: &'a [T], others: &'a [T]) -> impl Iterator<Item = (T, T)> + 'a {
    ones.iter()
        .flat_map(move |one| others.iter().map(move |other| (*one, *other)))
}

/// The values of a kind, as Rust displays them: all texts of up to two characters of a small alphabet, and all integers
/// of up to two digits of it.
fn small_values(kind: &str) -> Vec<String> {
    let texts = [":", "1", "3", "-", "a", "%", "2D"];
    match kind {
        "u64" => ["0", "1", "3", "10", "11", "13", "31"].map(str::to_owned).into(),
        "i64" => ["0", "1", "3", "-1", "-3", "11", "13", "-11", "-13"]
            .map(str::to_owned)
            .into(),
        _ => {
            let two = pairs(&texts, &texts).map(|(one, other)| format!("{one}{other}"));
            two.chain(texts.map(str::to_owned)).collect()
        }
    }
}

/// The names that a template of `small_templates` gives, rendered by the runtime's `escape`.
fn small_names(template: &str, kinds: &[&str]) -> HashSet<String> {
    let names =
        |kind: &str, of: &dyn Fn(&str) -> String| small_values(kind).iter().map(|value| of(value)).collect();
    match kinds {
        [] => HashSet::from([template.to_owned()]),
        [only] => names(only, &|value| template.replace("<a>", value)),
        [first, second, ..] => {
            let (before, after) = template.split_once("<a>").unwrap();
            let separator = after.chars().next().unwrap();
            let ones: Vec<String> = names(first, &|one| format!("{before}{}{after}", escape(one, separator)))
                .into_iter()
                .collect();
            ones.iter()
                .flat_map(|one| names(second, &|other| one.replace("<b>", other)))
                .collect()
        }
    }
}

/// The parts of a template whose fields `a` and `b` have these types.
fn language(template: &str, kinds: &[&str]) -> Vec<Segment> {
    let fields = ["a", "b"].iter().zip(kinds);
    let fields: Vec<String> = fields.map(|(name, kind)| format!("{name}: {kind}")).collect();
    let fields = fields.join(", ");
    let item = tokens(&format!("#[lock({template:?})] struct L {{ {fields} }}"));
    let mut errors = Errors::default();
    let declaration = Declaration::parse(item, &mut errors).unwrap();
    let pattern = Pattern::bind(&declaration.variants[0], &declaration, &mut errors);
    assert!(errors.is_empty(), "{template}: {}", errors.into_tokens());
    pattern.unwrap().language
}

/// For every two of the templates: if two values of a small alphabet give one name, the automaton finds an overlap; and
/// the name that it finds for an overlap is given by both templates, as reading it and rendering it again shows.
#[test]
fn the_proof_agrees_with_all_short_values() {
    let templates: Vec<_> = small_templates()
        .into_iter()
        .map(|(template, kinds)| {
            let language = language(&template, &kinds);
            let names = small_names(&template, &kinds);
            let automaton = Automaton::of(&language);
            let are_rendered = names.iter().all(|name| witness::is_rendered_by(&language, name));
            assert!(are_rendered, "{template}");
            (template, kinds, language, names, automaton)
        })
        .collect();
    let (mut pairs, mut overlaps) = (0, 0);
    for (at, (one, one_kinds, one_language, one_names, one_automaton)) in templates.iter().enumerate() {
        for (other, other_kinds, other_language, other_names, other_automaton) in &templates[..at] {
            pairs += 1;
            let what = || format!("`{one}` {one_kinds:?} and `{other}` {other_kinds:?}");
            match one_automaton.common_word(other_automaton) {
                None => assert!(one_names.is_disjoint(other_names), "{} overlap", what()),
                Some(name) => {
                    overlaps += 1;
                    for language in [one_language, other_language] {
                        assert!(witness::is_rendered_by(language, &name), "{}: {name}", what());
                    }
                }
            }
        }
    }
    let are_many = pairs > 100_000 && overlaps > 1000 && pairs - overlaps > 1000;
    assert!(are_many, "{pairs}, {overlaps}");
}

#[test]
fn no_item_makes_the_derive_panic() {
    each_seed(|random| {
        let [one, other] = [(); 2].map(|()| text(random, "<>abc:%0.", 0..=16));
        messages(&format!(
            "enum L {{ #[lock({one:?})] A {{ a: u8, b: String }}, #[lock({other:?})] B(u8) }}"
        ));
    });
}
